"""The exit handlers of a worker process: ``os._exit``, by which a forked process has to end, calls none."""

from __future__ import annotations

import atexit
import logging
import sys
import threading
import weakref

logger = logging.getLogger("django_pgqueue.worker")

SECONDS = 3.0
"""How long they may take: less than KILL_SECONDS, after which the supervisor kills the process."""


def leave_to_the_supervisor() -> None:
    """Leaves what the supervisor still needs to its own end.  Call it at the beginning of the forked process.

    All handlers of the project stay: a library that keeps data until the end has often registered its handler before
    the fork.  The temporary folders and the processes of the supervisor are not those of this process.
    """
    for finalizer in list(weakref.finalize._registry):  # type: ignore[attr-defined]  # noqa: SLF001
        finalizer.atexit = False
    if (multiprocessing := sys.modules.get("multiprocessing.util")) is not None:
        atexit.unregister(multiprocessing._exit_function)  # noqa: SLF001
        sys.modules["multiprocessing.process"]._children.clear()  # noqa: SLF001
    if (executors := sys.modules.get("concurrent.futures.process")) is not None:
        executors._threads_wakeups.clear()  # noqa: SLF001


def run() -> None:
    """Calls the handlers, as Python does at the end of a program, and waits up to ``SECONDS`` for them."""
    # Python prints the errors of handlers, and goes on.
    thread = threading.Thread(target=atexit._run_exitfuncs, name="exit handlers", daemon=True)  # noqa: SLF001
    try:
        thread.start()
    except RuntimeError as error:  # in this thread nothing would end the wait for one that hangs
        logger.warning("exit handlers are not called, and what they had to send may be lost: %s", error)
        return
    thread.join(SECONDS)
    if thread.is_alive():
        logger.warning("exit handlers have not ended after %.0f seconds: what they had to send may be lost", SECONDS)
