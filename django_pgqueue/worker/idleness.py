"""When to look for work again, and when to sleep until woken: arithmetic only."""

from __future__ import annotations

import random

AWAKE_SECONDS = 0.5
"""How long a worker that finds nothing goes on looking before it sleeps: while somebody sleeps, each enqueue costs a
notification, and those stand in one line for the whole database cluster."""
SHORTEST_LOOK_SECONDS, LONGEST_LOOK_SECONDS = 0.002, 0.008
POLL_SECONDS = 1.0
"""A sleeper looks this often even if nobody wakes it: the notification is a hint, looking is the truth."""
SHORTEST_DUE_SECONDS = 0.01


class Idleness:
    def __init__(self, *, listen: bool) -> None:
        self.listen = listen
        self.asleep = False
        self.wants_to_sleep = False
        self.next_look = 0.0
        self._dry_since: float | None = None

    def looked(self, *, found: int, wanted: int, now: float) -> None:
        """Takes note of a look: less than wanted means that there is no more for now."""
        if found:
            self._dry_since = None
        if found >= wanted:
            self.wants_to_sleep = False
            self.next_look = now
            return
        self._dry_since = now if self._dry_since is None else self._dry_since
        dry_seconds = now - self._dry_since
        self.wants_to_sleep = self.listen and not self.asleep and dry_seconds > AWAKE_SECONDS
        if dry_seconds > AWAKE_SECONDS:
            self.next_look = now + POLL_SECONDS * random.uniform(0.8, 1.2)  # noqa: S311 -- spreads load, keeps no secret
        else:
            self.next_look = now + min(LONGEST_LOOK_SECONDS, max(SHORTEST_LOOK_SECONDS, dry_seconds / 8))

    def fell_asleep(self) -> None:
        """Registered as a sleeper, where notifications are listened to: looks once more at once."""
        self.asleep, self.wants_to_sleep = True, False
        self.next_look = 0.0

    def woke_up(self) -> None:
        self.asleep = False

    def notified(self) -> None:
        self.next_look = 0.0

    def due_in(self, seconds: float, *, now: float) -> None:
        """The next scheduled message is due then."""
        self.next_look = min(self.next_look, now + max(SHORTEST_DUE_SECONDS, seconds))

    def pause(self, seconds: float, *, now: float) -> None:
        self.next_look = max(self.next_look, now + seconds)
