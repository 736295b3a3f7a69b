"""The work of a process beside its jobs: schedules, dependencies, maintenance, its own replacement."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from django_pgqueue import functions
from django_pgqueue.consumer.gone import Gone
from django_pgqueue.consumer.parts import NOT_DUE
from django_pgqueue.worker.upkeep.edits import Edits
from django_pgqueue.worker.upkeep.maintenance import Maintenance
from django_pgqueue.worker.upkeep.recycling import Recycling
from django_pgqueue.worker.upkeep.rollup import RollingUp
from django_pgqueue.worker.upkeep.scheduler import Scheduler
from django_pgqueue.worker.upkeep.vacuum import Vacuum

if TYPE_CHECKING:
    from django_pgqueue.consumer.parts import Parts
    from django_pgqueue.consumer.polling import Polling
    from django_pgqueue.consumer.session import Session
    from django_pgqueue.worker.settings import WorkerSettings
    from django_pgqueue.worker.upkeep.retirement import Retirement

SETTLE_EVERY_SECONDS = 0.2
GONE = "workers that are gone"


class Upkeep:
    """Called by the process's thread alone, in each turn."""

    def __init__(
        self,
        settings: WorkerSettings,
        session: Session,
        parts: Parts,
        *,
        polling: Polling,
        retirement: Retirement | None,
    ) -> None:
        self.session = session
        self.parts = parts
        self.polling = polling
        self.scheduler = Scheduler(session.database, worker=session.consumer, off=settings.burst)
        self.maintenance = Maintenance(history_days=settings.history_days, lake_days=settings.lake_days)
        self.vacuum = Vacuum()
        self.rollup = RollingUp()
        self.edits = Edits(session.database)
        """These four are done in a thread of their own."""
        self.recycling = Recycling(settings, retirement)
        self.gone = Gone(session)
        self._next_settling = 0.0

    def do_if_due(self) -> None:
        if self.polling.rests:  # the rest ends when something is due
            return
        self.parts.do("schedules", self._schedule_if_due)
        self.parts.do("dependencies", self._settle_if_due)
        self.parts.do(GONE, lambda: self.gone.look_if_due(self.polling.notified))

    def leave(self) -> None:
        """Called when the process claims nothing more, so that its declarations hold up no other worker."""
        self.parts.do("schedules", lambda: self.scheduler.leave(self.session.statements))

    def due_at(self) -> float:
        if self.polling.rests:
            return float("inf")
        return min(
            self.parts.due_at("schedules", self.scheduler.next_look),
            self.parts.due_at(GONE, self.gone.next_look),
        )

    def settle(self) -> int:
        """Releases messages whose wait for others is over.  Returns how many."""
        return functions.message_settle(self.session.statements)

    def _schedule_if_due(self) -> object:
        if time.monotonic() < self.scheduler.next_look:
            return NOT_DUE
        if self.scheduler.look_if_due(self.session.statements):
            self.polling.notified()
        return None

    def _settle_if_due(self) -> object:
        """Looks at messages that wait for others and may have missed an end.  Claims release all other ones."""
        now = time.monotonic()
        # A sleeper does it when it polls, in the same transaction.
        if now < self._next_settling or self.polling.asleep:
            return NOT_DUE
        self._next_settling = now + SETTLE_EVERY_SECONDS
        if self.settle():
            self.polling.notified()
        return None
