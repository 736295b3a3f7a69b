"""The threads that write what a ``QueueHandler`` hands over to them: a forked process has none of them."""

from __future__ import annotations

import logging
import queue
from logging.handlers import QueueListener


def start_again() -> None:
    """Starts those that the program had started before the fork.  Call it at the beginning of the forked process.

    ``dictConfig``, and handlers of libraries that send lines over a network, have their listener as ``listener``.
    """
    for reference in list(logging._handlerList):  # type: ignore[attr-defined]  # noqa: SLF001
        listener = getattr(reference(), "listener", None)
        if not isinstance(listener, QueueListener) or listener._thread is None:  # noqa: SLF001
            continue
        if isinstance(listener.queue, queue.Queue | queue.SimpleQueue):
            # The one from before the fork has lines that the supervisor writes, and may be locked for ever.
            anew: queue.Queue[logging.LogRecord] = queue.Queue(getattr(listener.queue, "maxsize", 0))
            reference().queue = listener.queue = anew
            listener._thread = None  # noqa: SLF001 -- Python 3.14 starts no second one
            listener.start()
