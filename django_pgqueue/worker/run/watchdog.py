"""Watches the slots: ends attempts whose thread or event loop has died, so that their process is replaced."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import threading

    from django_pgqueue.worker.run.slots import Slots

LOOK_EVERY_SECONDS = 0.5
THREADS = Path("/proc/self/task")


class Watchdog:
    """Called by the process's thread alone, in each turn."""

    def __init__(self) -> None:
        self.blocked_seconds = 0.0
        """For how long an event loop with coroutines has made no turn."""
        self.died = 0
        """Threads and event loops that have ended before their tasks."""
        self._next_look = 0.0

    def look_if_due(self, slots: Slots, *, now: float) -> str | None:
        """Returns why the process has to be replaced, if it has to."""
        if now < self._next_look:
            return None
        self._next_look = now + LOOK_EVERY_SECONDS
        found = slots.limits.bury()
        self.died += len(found)
        self.blocked_seconds = slots.seconds_without_a_turn(now)
        return f"{' and '.join(found)} died" if found else None


def is_alive(thread: threading.Thread) -> bool:
    """Whether a thread really runs.  A library may end it below Python (pthread_exit), and Python does not see that.
    The system is asked, where it shows its threads.
    """
    if not thread.is_alive():
        return False
    return thread.native_id is None or not THREADS.exists() or (THREADS / str(thread.native_id)).exists()
