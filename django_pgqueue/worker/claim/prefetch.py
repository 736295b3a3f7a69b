"""Decides how many messages a worker holds: enough to keep its slots busy, not so many that others could start them."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

    from django_pgqueue.worker.run.outcome import EndedAttempt

AHEAD_SECONDS = 0.05
"""Claim what can start within this time."""
MAX_HELD = 3000
MAX_CLAIMED = 1000
REMEMBERED = 200
SHORT_SECONDS = 0.005
"""Slots that run jobs this short are free again before another worker could be woken."""


class Prefetch:
    """Learns how long jobs take.  Called by the claimer, in the process's thread."""

    def __init__(self, slots: int, *, ahead: bool = True) -> None:
        """Without ``ahead`` the worker claims only what a slot is free for."""
        self.slots = slots
        self.ahead = ahead
        self.job_seconds = AHEAD_SECONDS  # nothing is known yet: hold one for each slot
        self._remembered = 0.1
        """How many jobs this is the mean of."""
        self._decide()
        self.is_known = False
        self.last_progress = 0.0
        """The time when something was begun or has ended, by the monotonic clock."""

    def resize(self, slots: int) -> None:
        self.slots = slots
        self._decide()

    def learn(self, ended: Sequence[EndedAttempt]) -> None:
        # The mean of all jobs, not of a sample: one in some hundreds loses the interpreter while it runs, and seems to
        # have taken a thousand times as long as the others.  All together cannot seem to have taken more time than the
        # slots had.  Such a job may come alone, so those before count half, as REMEMBERED jobs at most.
        kept = min(self._remembered / 2, REMEMBERED)
        seconds = sum([end.finished_us - end.started_us for end in ended]) / 1e6
        self._remembered = kept + len(ended)
        self.job_seconds = (self.job_seconds * kept + seconds) / self._remembered
        self.is_known = True
        self._decide()

    def stalled(self) -> None:
        """Jobs take longer than they did: hold one for each slot again."""
        self.job_seconds, self._remembered = max(self.job_seconds, AHEAD_SECONDS), 1.0
        self._decide()

    def _decide(self) -> None:
        """The worker claims again when fewer than ``refill_below`` are unfinished, so that the next batch arrives while
        this one runs.
        """
        begin_in_time = int(self.slots * AHEAD_SECONDS / max(self.job_seconds, 1e-6))
        self.most_held = min(MAX_HELD, max(self.slots, begin_in_time)) if self.ahead else self.slots
        self.refill_below = self.most_held if self.most_held <= self.slots else max(self.slots, self.most_held // 2)

    @property
    def may_be_short(self) -> bool:
        """Whether the slots may well be free again in a moment."""
        return not self.is_known or self.job_seconds < SHORT_SECONDS

    def is_full_for_long(self, now: float) -> bool:
        """Whether slots that are full will stay so."""
        return not self.may_be_short or now >= self.last_progress + SHORT_SECONDS

    def room(self, unfinished: int) -> int:
        """Returns how many messages to claim now."""
        return min(MAX_CLAIMED, self.most_held - unfinished) if unfinished < self.refill_below else 0
