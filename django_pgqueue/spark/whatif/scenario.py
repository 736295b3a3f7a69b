"""A scenario: the number of slots, the load, and the limit of each channel."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Scenario:
    """
    >>> str(Scenario(slots=8, load=2.0))
    '8 slots, load x 2'
    """

    slots: int
    """Messages that all workers together run at a time: processes times threads."""
    load: float = 1.0
    """Factor; 2 means the same arrivals in half the time."""
    channel_limit: int | None = None
    """Messages of one channel that run at a time."""

    def __post_init__(self) -> None:
        if self.slots < 1 or self.load <= 0 or (self.channel_limit is not None and self.channel_limit < 1):
            message = f"{self!r} is impossible: slots and limits must be 1 or more, and the load more than 0."
            raise ValueError(message)

    def __str__(self) -> str:
        limit = "" if self.channel_limit is None else f", {self.channel_limit} at a time a channel"
        return f"{self.slots} slots, load x {self.load:g}{limit}"
