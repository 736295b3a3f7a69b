"""The rest of a worker that has nothing to do: it says nothing and asks nothing for ``IDLE_POLL_SECONDS``.

A sleeper polls every second, because a notification may miss it: an enqueue that read the workers before this one
slept, and commits after its last look, notifies nobody (``Polling.slept_on`` shortens that wait).  So a worker
rests only when no transaction is left that began before its row said that it rests.  From then on whatever is enqueued
wakes it, or is due after its next look.

It does not rest beside a worker that is awake: the database is awake then anyway, and that worker may leave something
behind of which nobody is told, when it ends a job, gives back what it has not begun, or dies.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from django_pgqueue import functions
from django_pgqueue.consumer import polling as polls
from django_pgqueue.consumer.row import SEEN_EVERY_SECONDS

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from django_pgqueue.consumer.parts import Parts
    from django_pgqueue.consumer.polling import Polling
    from django_pgqueue.consumer.session import Session
    from django_pgqueue.functions import OpenTransactions, Outlook
    from django_pgqueue.worker.claim.registration import Registration
    from django_pgqueue.worker.settings import WorkerSettings

LATE_SECONDS = 30.0
"""A worker that looks this much later than it has announced still counts as alive."""


class Rest:
    """Called by the claimer, in the process's thread."""

    def __init__(
        self,
        settings: WorkerSettings,
        session: Session,
        parts: Parts,
        *,
        registration: Registration,
        polling: Polling,
        schedules: Callable[[], Sequence[str] | None],
    ) -> None:
        """``schedules`` returns the names of the declared schedules that the process fires.  None: it may not rest,
        because there is something to do about them.
        """
        self.settings = settings
        self.session = session
        self.parts = parts
        self.registration = registration
        self.polling = polling
        self.schedules = schedules
        self.seconds = settings.idle_poll_seconds
        self._before: OpenTransactions | None = None
        """Transactions that were open when the rest was announced."""
        self._ask_at = 0.0
        self._in_vain = False
        """Something was due at the last look, and is still."""

    @property
    def is_wanted(self) -> bool:
        return self.seconds > polls.POLL_SECONDS and not self.settings.burst

    def is_ready(self) -> bool:
        """Whether the worker may rest if the look that begins now finds nothing."""
        if not self.is_wanted or not self.registration.rests:
            return False
        if self._before is not None and functions.transactions_are_over(self.session.statements, self._before):
            self._before = None
        return self._before is None

    def looked(self, *, idle: bool, ready: bool) -> None:
        """Called after a look.  ``idle``: it found nothing, and nothing is held.  ``ready``: see ``is_ready``."""
        if not idle:
            if self.registration.rests:
                self.registration.next_seen = 0.0
            return
        if not self.is_wanted or not (self.polling.asleep or self.polling.is_dry) or self.schedules() is None:
            return
        if (ready and self.registration.rests) or not self.polling.listen:
            self.goes_on()
        elif not self.registration.rests:
            if self._announce() is not None:
                self._before = functions.open_transactions(self.session.statements)
                self._ask_at = time.monotonic() + SEEN_EVERY_SECONDS
                self.polling.next_look = 0.0
        elif time.monotonic() >= self._ask_at:
            self._ask_again()

    def _ask_again(self) -> None:
        """Asks whether something is due, while the worker waits for transactions and does not refresh its row."""
        self._ask_at = time.monotonic() + SEEN_EVERY_SECONDS
        outlook = self._announce()
        if outlook is not None and outlook.due_at is not None and outlook.due_at <= outlook.now:
            self.registration.next_seen = 0.0  # as in goes_on

    def goes_on(self) -> bool:
        """Asks whether something is due and, if not, rests until something will be, or for ``IDLE_POLL_SECONDS``."""
        outlook, now = self._announce(), time.monotonic()
        if self.polling.hurries:  # a notification came meanwhile, for a message that the outlook does not know
            self.polling.rests, self.polling.next_look = False, 0.0
            return False
        seconds = self.seconds
        if outlook is not None and outlook.due_at is not None:
            seconds = min(seconds, (outlook.due_at - outlook.now) / 1000)
        if outlook is not None and seconds > 0:
            self._in_vain = False
            if outlook.others_are_awake:
                self.polling.rests, self.polling.next_look = False, now + min(seconds, polls.POLL_SECONDS)
                return False
            self.polling.rest(until=now + seconds)
            return True
        self.polling.rests = False
        self.polling.next_look = now + (polls.POLL_SECONDS if self._in_vain else polls.MIN_DUE_SECONDS)
        self._in_vain = True
        self.registration.next_seen = 0.0  # quarantined messages that are due, and parked ones, are noticed there
        return False

    def _announce(self) -> Outlook | None:
        """Returns None if the row of the worker is gone, or if the rest is not possible at present."""
        outlooks: list[Outlook | None] = []
        self.parts.do("rest", lambda: outlooks.append(self._write()))
        outlook, company = outlooks[0] if outlooks else None, self.polling.company
        self.registration.announced(outlook is not None, seconds=self.seconds + LATE_SECONDS)
        if outlook is not None and outlook.ordered_differs(company):  # it is followed where the row is refreshed
            outlook = outlook._replace(due_at=outlook.now)
        return outlook

    def _write(self) -> Outlook | None:
        silent_ms = int((self.seconds + LATE_SECONDS) * 1000)
        return functions.worker_rest(
            self.session.statements,
            worker=self.registration.id,
            queues=self.settings.queues,
            exclude_queues=self.settings.exclude_queues,
            schedules=self.schedules() or (),
            silent_ms=silent_ms,
            # Beyond the next look: until that one renews it, enqueues of what is due after it wake the worker too.
            asleep_ms=2 * silent_ms if self.polling.asleep else None,
        )
