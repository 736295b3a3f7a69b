"""Threads beside the slots: receivers and backoffs of a project may take their time, and the process's thread has none.

They are rare: an attempt whose time is up, a signal that had to wait until the outcome was recorded.
"""

from __future__ import annotations

import logging
import threading
import time
from contextvars import copy_context
from dataclasses import dataclass
from typing import TYPE_CHECKING

from django.db import connections

from django_pgqueue.consumer.forks import forked_children_end_here

if TYPE_CHECKING:
    from collections.abc import Callable

    from django_pgqueue.consumer.wakeup import Wakeup
    from django_pgqueue.worker.run.execution import Execution

logger = logging.getLogger("django_pgqueue.worker")

MAX_ASIDE_SECONDS = 30.0
"""How long receivers and backoffs of a project may take.  After that the attempt ends without them."""


@dataclass(slots=True)
class Aside:
    """Work in a thread of its own."""

    until: float
    execution: Execution | None
    """The attempt that the work ends."""


class AsideThreads:
    """The process's thread starts them and gives them up.  Whoever takes a thread out of the list makes the end of its
    attempt: the thread itself, or the process's thread when it has not returned in time.
    """

    def __init__(self, wakeup: Wakeup) -> None:
        self.wakeup = wakeup
        self._all: dict[threading.Thread, Aside] = {}
        self._unstarted: list[threading.Thread] = []
        """The system had no more threads: the next turn tries again."""

    def are_busy(self) -> bool:
        return bool(self._all)

    def start(self, do: Callable[[], None], execution: Execution | None = None) -> None:
        """Calls ``do``, which ends ``execution``."""

        def run() -> None:
            try:
                with forked_children_end_here:
                    copy_context().run(do)
            finally:
                connections.close_all()
                self._all.pop(threading.current_thread(), None)
                self.wakeup.wake()

        thread = threading.Thread(target=run, name="aside", daemon=True)
        self._all[thread] = Aside(time.monotonic() + MAX_ASIDE_SECONDS, execution)
        self._unstarted.append(thread)
        self._start()

    def _start(self) -> None:
        while self._unstarted:
            try:
                self._unstarted[0].start()
            except RuntimeError:
                return
            self._unstarted.pop(0)

    def is_awaited(self) -> bool:
        """Called in such a thread when it knows the end of its attempt: whether that end counts."""
        return self._all.pop(threading.current_thread(), None) is not None

    def give_up(self, now: float, end: Callable[[Execution], None]) -> None:
        """Gives up what does not return, so that no message is held for ever, and the process can be replaced.
        ``end`` ends an attempt without it.
        """
        self._start()
        for thread, aside in list(self._all.items()):
            if now < aside.until or self._all.pop(thread, None) is None:
                continue
            if aside.execution is not None:
                end(aside.execution)
            else:
                logger.error(
                    "not waited for: a receiver of a signal has not returned for %g seconds", MAX_ASIDE_SECONDS
                )

    def due_at(self) -> float:
        return min((aside.until for aside in list(self._all.values())), default=float("inf"))
