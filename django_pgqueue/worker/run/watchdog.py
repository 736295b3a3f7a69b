"""Looks after the slots: what is held, and nobody runs, is ended, and its process is replaced."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import threading

    from django_pgqueue.worker.run.threads import Slots

LOOK_EVERY_SECONDS = 0.5
THREADS = Path("/proc/self/task")


class Watchdog:
    """Of the consumer's thread."""

    def __init__(self) -> None:
        self.blocked_seconds = 0.0
        """So long an event loop that runs coroutines has not come round."""
        self.died = 0
        """Threads and event loops that have ended before their tasks."""
        self._next_look = 0.0

    def look_if_due(self, slots: Slots, *, now: float) -> str | None:
        """Why the process has to be replaced, if it has to."""
        if now < self._next_look:
            return None
        self._next_look = now + LOOK_EVERY_SECONDS
        found = slots.bury()
        self.died += len(found)
        self.blocked_seconds = slots.seconds_without_a_turn(now)
        return f"{' and '.join(found)} died" if found else None


def is_alive(thread: threading.Thread) -> bool:
    """A library may end a thread below Python (pthread_exit), which goes on to think that it runs.  Where the system
    shows its threads, it is asked.
    """
    if not thread.is_alive():
        return False
    return thread.native_id is None or not THREADS.exists() or (THREADS / str(thread.native_id)).exists()
