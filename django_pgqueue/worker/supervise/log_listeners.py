"""The threads that write what a ``QueueHandler`` hands over to them: a forked process has none of them."""

from __future__ import annotations

import logging
import queue
from logging.handlers import QueueListener
from typing import Any

logger = logging.getLogger("django_pgqueue.worker")


def start_again() -> None:
    """Starts those that the program had started before the fork.  Call it at the beginning of the forked process.

    ``dictConfig``, and handlers of libraries that send lines over a network, have their listener as ``listener``.
    """
    handlers: dict[QueueListener, list[Any]] = {}
    for reference in list(logging._handlerList):  # type: ignore[attr-defined]  # noqa: SLF001
        handler = reference()
        if isinstance(listener := getattr(handler, "listener", None), QueueListener) and listener._thread is not None:  # noqa: SLF001
            handlers.setdefault(listener, []).append(handler)
    for listener, its in handlers.items():
        try:
            _start(listener, its)
        except Exception:  # a log costs no worker
            logger.warning("A QueueListener of the logging cannot be started.", exc_info=True)


def _start(listener: QueueListener, handlers: list[Any]) -> None:
    # The queue from before the fork has lines that the supervisor writes, and may be locked for ever.
    anew: Any
    if isinstance(listener.queue, queue.Queue):
        anew = type(listener.queue)(listener.queue.maxsize)
    elif isinstance(listener.queue, queue.SimpleQueue):
        anew = queue.SimpleQueue()
    else:  # one between processes: the thread of the supervisor writes what comes in
        return
    for handler in handlers:
        handler.queue = anew
    listener.queue = anew
    listener._thread = None  # noqa: SLF001 -- Python 3.14 starts no second one
    listener.start()
