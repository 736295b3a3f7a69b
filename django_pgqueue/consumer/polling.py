"""Decides when a consumer looks for work again, and when it sleeps until woken: arithmetic only."""

from __future__ import annotations

import random
from typing import TYPE_CHECKING

from django_pgqueue.functions import Company

if TYPE_CHECKING:
    from collections.abc import Callable

    from django_pgqueue.functions import Prospect

AWAKE_SECONDS, QUIET_AWAKE_SECONDS = 0.5, 0.001
"""How long a worker that finds nothing goes on looking before it sleeps: while a worker sleeps, each enqueue costs a
notification, and the whole database cluster handles those one after the other."""
FEW_A_SECOND = 100
"""This many notifications do no harm.  Where all workers together find no more than that, they sleep almost at once: a
woken worker begins sooner than one that looks from time to time."""
MIN_LOOK_SECONDS, MAX_LOOK_SECONDS = 0.002, 0.008
POLL_SECONDS = 1.0
"""A sleeper looks this often even without a notification: the notification is a hint, looking is the truth."""
MAX_POLL_SECONDS = 1.2 * POLL_SECONDS
MIN_DUE_SECONDS = 0.01


class Polling:
    """Called by the consumer's thread alone: around each look, and for each notification."""

    def __init__(self, *, listen: bool) -> None:
        self.listen = listen
        self.asleep = False
        self.wants_to_sleep = False
        self.hurries = False
        """The consumer was woken, and has not looked yet: a message waits."""
        self.stays_asleep = False
        """The last look was that of a sleeper, which does not wake up: it found nothing, or there is so little to do
        that each enqueue may notify it."""
        self.polled = False
        """The last look was that of a sleeper that no notification had woken."""
        self.is_dry = False
        """Looks have found nothing for some time."""
        self.rests = False
        """It waits for a notification, or for the time of its next look, and does nothing else meanwhile."""
        self.next_look = 0.0
        self.company = Company(workers=1, with_room=0)
        self._writing: frozenset[int] | None = frozenset()
        """Transactions that were open when the consumer fell asleep, and still are.  None: it has not asked yet.  An
        enqueue in one of them may have read that the consumer was awake, and so notified nobody."""
        self._was_called_by_another = False
        self._poll_at = self._ask_at = self._ask_seconds = 0.0
        self._dry_since: float | None = None
        self._found_at: float | None = None
        self._gap_seconds = 1.0
        """About the time from one find to the next."""

    def looks(self) -> None:
        """Called when a look begins: a notification from now on may be for a message that this look does not see any
        more.
        """
        self.polled = self.is_poll
        self.hurries = False

    @property
    def is_poll(self) -> bool:
        """Whether the next look is that of a sleeper that no notification has woken."""
        return self.asleep and not self.hurries

    def looked(self, *, found: int, wanted: int, now: float) -> None:
        """Takes note of a look.  Fewer than wanted means that there are no more for now."""
        if found:
            self._dry_since = None
            if self._found_at is not None:
                self._gap_seconds += (min(1.0, now - self._found_at) - self._gap_seconds) * 0.25
            self._found_at = now
        self.is_dry = False
        self.stays_asleep = self.asleep and (not found or (found < wanted and self._is_quiet()))
        if found >= wanted:
            self.wants_to_sleep = False
            self.next_look = now
            return
        self._dry_since = now if self._dry_since is None else self._dry_since
        dry_seconds = now - self._dry_since
        self.is_dry = dry_seconds > AWAKE_SECONDS
        awake_seconds = QUIET_AWAKE_SECONDS if self._is_quiet() else AWAKE_SECONDS
        self.wants_to_sleep = self.listen and not self.asleep and dry_seconds > awake_seconds
        if self.hurries:
            self.next_look = now
        elif self.stays_asleep or dry_seconds > AWAKE_SECONDS:
            self.next_look = now + _poll_seconds()
        else:
            pause_seconds = min(MAX_LOOK_SECONDS, max(MIN_LOOK_SECONDS, dry_seconds / 8))
            # Awake workers together look as often as one of them would.
            self.next_look = now + pause_seconds * max(1, self.company.with_room)

    def sleeps_on(self, *, now: float) -> None:
        """Puts the next look off, because others are there for new messages."""
        if self.hurries:  # a notification came with an answer
            return
        self._writing, self._was_called_by_another = frozenset(), False
        self._poll_at = self.next_look = now + _poll_seconds()

    # Transactions that stay open while the consumer falls asleep

    def slept_on(self, prospect: Prospect | None, *, now: float) -> None:
        """Called after a look of a sleeper that stays asleep.  ``prospect``: what it asked before a poll.  None: it was
        woken, and its next poll is when it would have been.

        Another consumer wakes it when that one has no room any more, for messages that may be committed later: then it
        polls at once.  After a poll the consumer asks whether transactions have ended after 2, 4, 8, ... ms, so that
        the message of a late commit waits no longer than its transaction was open while the consumer slept.
        """
        if prospect is None:
            if self._was_called_by_another or self._writing is None:
                self._was_called_by_another, self._writing, self.next_look = False, None, 0.0
            elif not self.hurries:
                self.next_look = min(self._ask_at, self._poll_at) if self._writing else self._poll_at
            return
        if prospect.next_at is not None:
            due_seconds = max(MIN_DUE_SECONDS, (prospect.next_at - prospect.now) / 1000)
            self.next_look = min(self.next_look, now + due_seconds)
        if self._writing is None:
            self._writing, self._ask_seconds = prospect.writing, MIN_LOOK_SECONDS
        else:
            self._writing &= prospect.writing
        self._poll_at = self.next_look
        self._ask_later(now)

    def asks_first(self, now: float) -> bool:
        """Whether it polls now only if one of these transactions has ended."""
        # Others may have ordered an earlier look since.
        return self.is_poll and bool(self._writing) and self.next_look == self._ask_at and now < self._poll_at

    def is_due(self, ask: Callable[[], frozenset[int]], *, now: float) -> bool:
        """Whether to look now.  Where that depends on transactions, ``ask`` returns those that are open."""
        if now < self.next_look:
            return False
        if not self.asks_first(now):
            return True
        open_before = self._writing or frozenset()
        self._writing = open_before & ask()
        if self._writing != open_before or self.hurries:  # or a notification came with the answer
            return True
        self._ask_later(now)
        return False

    def _ask_later(self, now: float) -> None:
        self.next_look = min(self._poll_at, now + self._ask_seconds) if self._writing else self._poll_at
        self._ask_at = self.next_look
        self._ask_seconds *= 2

    def _is_quiet(self) -> bool:
        return self.company.workers < FEW_A_SECOND * self._gap_seconds

    def fell_asleep(self) -> None:
        """Called when the consumer is registered as a sleeper, and notifications reach it: it looks once more
        at once.
        """
        self.asleep, self.wants_to_sleep = True, False
        self._was_called_by_another, self._writing, self.next_look = False, None, 0.0

    def woke_up(self) -> None:
        if self.stays_asleep:  # and has put its next look off
            self.stays_asleep, self.next_look = False, 0.0
        self.asleep = self.rests = False

    def looks_soon(self) -> None:
        """Called when something that the consumer has put back itself may be due soon.  A sleeper polls."""
        self.next_look = 0.0

    def rest(self, *, until: float) -> None:
        self.rests = True
        self.next_look = until

    def ends_rest(self) -> None:
        if self.rests:
            self.rests, self.next_look = False, 0.0

    def notified(self, by_another: bool = False) -> None:
        """``by_another``: by a consumer that has no room any more, not by the transaction of a message."""
        self._was_called_by_another = self._was_called_by_another or by_another
        self.hurries, self.rests = True, False
        self.next_look = 0.0

    def pause(self, seconds: float, *, now: float) -> None:
        self.ends_rest()  # nobody has heard the notifications
        self.next_look = max(self.next_look, now + seconds)


def _poll_seconds() -> float:
    return random.uniform(0.8 * POLL_SECONDS, 1.2 * POLL_SECONDS)  # noqa: S311 -- spreads load, keeps no secret
