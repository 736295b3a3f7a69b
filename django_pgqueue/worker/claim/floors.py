"""Keeps claims fast while a long transaction holds a snapshot, or many workers hold one each for a moment.

The entries of ended messages stay at the head of the index as long as any snapshot might need them, and each claim from
the head walks over all of them.  A floor, the place where the last claim stopped, lets the next one begin behind them.
Full claims in between find what lies below a floor (late commits, other priorities).  They get a bounded share of the
time or, among many workers, of the claims.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from django_pgqueue.functions import Floor

if TYPE_CHECKING:
    from collections.abc import Sequence

    from django_pgqueue.functions import Received

SLOW_SECONDS, SLOW_SECONDS_A_MESSAGE, SLOW_SECONDS_IN_A_CHANNEL = 0.004, 20e-6, 300e-6
"""A claim that takes longer than this walked over dead entries: the usual one takes 0.3 ms and 8 µs for each message,
or up to 60 µs for one of a channel."""
FULL_SHARE = 0.15
"""Share of the time that full claims may take while they are slow."""
MANY = 100
FULL_EACH = 4
"""Where workers wait for their turn to claim, each of them makes one full claim in so many."""


class Floors:
    """Called by the claimer, in the process's thread: ``choose`` before a claim, ``learn`` after it."""

    def __init__(self) -> None:
        self._floors: dict[tuple[str, int], Floor] = {}
        self._full_claim_at = 0.0
        self._until_full = 0
        self.slow = False

    def choose(self, now: float) -> list[Floor] | None:
        """Returns the floors for the next claim, highest priority first; None: a full claim."""
        if not self._until_full and (not self.slow or now >= self._full_claim_at):
            return None
        return sorted(self._floors.values(), key=lambda floor: -floor.priority) or None

    def learn(
        self, claimed: Sequence[Received], *, seconds: float, full: bool, now: float, crowded: bool = False
    ) -> None:
        """Takes note of a claim that took ``seconds`` and ended at ``now``.  ``crowded``: it took all that it wanted,
        and waited longer for its turn than it then took, so several other workers claim as well.
        """
        until_full = FULL_EACH if full else self._until_full
        self._until_full = max(0, until_full - 1) if crowded else 0
        if full:
            of_channels = sum(message.channel is not None for message in claimed)
            usual = SLOW_SECONDS_A_MESSAGE * (len(claimed) - of_channels) + SLOW_SECONDS_IN_A_CHANNEL * of_channels
            self.slow = seconds > SLOW_SECONDS + usual
            self._full_claim_at = now + seconds * (1 - FULL_SHARE) / FULL_SHARE
            if not self.slow:
                self._floors.clear()
        if len(claimed) >= MANY and not (self.slow or self._until_full):
            return  # to learn the floors takes time, and the next claim does not begin at them
        for message in claimed:
            if message.channel is not None:
                continue  # a claim looks into each lane from its head
            key = (message.queue, message.priority)
            floor = self._floors.get(key)
            if floor is None or (message.dequeue_at, message.id) > (floor.dequeue_at, floor.id):
                self._floors[key] = Floor(*key, message.dequeue_at, message.id)
