"""The duties that may have to wait for other sessions, in threads and connections beside the process's thread."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from django_pgqueue.consumer.background import Background
from django_pgqueue.consumer.connection import answer_seconds

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from django_pgqueue.consumer.background import Duty
    from django_pgqueue.consumer.session import Session

ROW_WAIT_MS = 200
UPKEEP = "upkeep"
"""The thread whose statements may take long, as a vacuum after a long transaction."""
LEAVE_SECONDS = 5.0


def upkeep_answer_seconds() -> float:
    """Returns how long that thread waits for an answer."""
    return 3600.0


class Beside:
    """Called by the process's thread: ``start_if_due`` in each turn, and ``stop`` at the end."""

    def __init__(self, session: Session, duties: Mapping[str, Sequence[Duty]]) -> None:
        """``session``: that of the process's thread; the others lead to the same database.  ``duties``: those of each
        thread, by the thread's name.
        """
        self.threads = {
            name: Background(
                name,
                of_thread,
                database=session.database,
                worker=session.consumer,
                pooled=session.pooled,
                row_wait_ms=ROW_WAIT_MS,
                answer_seconds=upkeep_answer_seconds if name == UPKEEP else answer_seconds,
            )
            for name, of_thread in duties.items()
        }

    def start_if_due(self) -> None:
        for thread in self.threads.values():
            thread.start_if_due()

    def due_at(self) -> float:
        """Returns when the process's thread has to start a thread."""
        return min(thread.due_at() for thread in self.threads.values())

    def busy_since(self, name: str) -> float:
        """Returns when a thread began what it does now, by the monotonic clock; infinite: it does nothing."""
        return self.threads[name].busy_since

    @property
    def problems(self) -> list[str]:
        """The duties that cannot be done at present, and why."""
        return [f"{name}: {why}" for thread in self.threads.values() for name, why in list(thread.problems.items())]

    def stop(self) -> None:
        """Ends the threads.  It waits a moment for what they do, and then goes on without them."""
        for thread in self.threads.values():
            thread.stop()
        leave_by = time.monotonic() + LEAVE_SECONDS
        for thread in self.threads.values():
            thread.join(max(0.0, leave_by - time.monotonic()))
