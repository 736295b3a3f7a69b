"""When to look for work again, and when to sleep until woken: arithmetic only."""

from __future__ import annotations

import random

from django_pgqueue.functions import Company

AWAKE_SECONDS, QUIET_AWAKE_SECONDS = 0.5, 0.001
"""How long a worker that finds nothing goes on looking before it sleeps: while somebody sleeps, each enqueue costs a
notification, and those stand in one line for the whole database cluster."""
FEW_A_SECOND = 100
"""So many notifications harm nobody.  Where all workers together find no more than that, they sleep almost at once:
who is woken begins sooner than who looks from time to time."""
MIN_LOOK_SECONDS, MAX_LOOK_SECONDS = 0.002, 0.008
POLL_SECONDS = 1.0
"""A sleeper looks this often even if nobody wakes it: the notification is a hint, looking is the truth."""
MAX_POLL_SECONDS = 1.2 * POLL_SECONDS
MIN_DUE_SECONDS = 0.01


class Polling:
    def __init__(self, *, listen: bool) -> None:
        self.listen = listen
        self.asleep = False
        self.wants_to_sleep = False
        self.hurries = False
        """Somebody is waiting: woken, and has not looked yet."""
        self.polled = False
        """The last look was a sleeper's that nobody had woken."""
        self.next_look = 0.0
        self.company = Company(workers=1, with_room=0)
        self._dry_since: float | None = None
        self._found_at: float | None = None
        self._gap_seconds = 1.0
        """How long it takes from one find to the next, by and large."""

    def looks(self) -> None:
        """A look begins: who is woken from now on is woken for something that it may not see any more."""
        self.polled = self.is_poll
        self.hurries = False

    @property
    def is_poll(self) -> bool:
        """Whether the next look is a sleeper's that nobody has woken."""
        return self.asleep and not self.hurries

    def looked(self, *, found: int, wanted: int, now: float) -> None:
        """Takes note of a look: less than wanted means that there is no more for now."""
        if found:
            self._dry_since = None
            if self._found_at is not None:
                self._gap_seconds += (min(1.0, now - self._found_at) - self._gap_seconds) * 0.25
            self._found_at = now
        if found >= wanted:
            self.wants_to_sleep = False
            self.next_look = now
            return
        self._dry_since = now if self._dry_since is None else self._dry_since
        dry_seconds = now - self._dry_since
        awake_seconds = QUIET_AWAKE_SECONDS if self._is_quiet() else AWAKE_SECONDS
        self.wants_to_sleep = self.listen and not self.asleep and dry_seconds > awake_seconds
        if self.hurries:
            self.next_look = now
        elif (self.asleep and not found) or dry_seconds > AWAKE_SECONDS:
            self.next_look = now + _poll_seconds()
        else:
            pause_seconds = min(MAX_LOOK_SECONDS, max(MIN_LOOK_SECONDS, dry_seconds / 8))
            # Together they look as often as one of them would.
            self.next_look = now + pause_seconds * max(1, self.company.with_room)

    def sleeps_on(self, *, now: float) -> None:
        """Others are there for what comes."""
        self.next_look = now + _poll_seconds()

    def _is_quiet(self) -> bool:
        return self.company.workers < FEW_A_SECOND * self._gap_seconds

    def fell_asleep(self) -> None:
        """Registered as a sleeper, where notifications are listened to: looks once more at once."""
        self.asleep, self.wants_to_sleep = True, False
        self.next_look = 0.0

    def woke_up(self) -> None:
        self.asleep = False

    def notified(self) -> None:
        self.hurries = True
        self.next_look = 0.0

    def due_in(self, seconds: float, *, now: float) -> None:
        """The next scheduled message is due then."""
        self.next_look = min(self.next_look, now + max(MIN_DUE_SECONDS, seconds))

    def pause(self, seconds: float, *, now: float) -> None:
        self.next_look = max(self.next_look, now + seconds)


def _poll_seconds() -> float:
    return random.uniform(0.8 * POLL_SECONDS, 1.2 * POLL_SECONDS)  # noqa: S311 -- spreads load, keeps no secret
