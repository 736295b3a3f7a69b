"""Which claims wait for the claims of other workers, so that one comes after the other (pgqueue_message_await_turn)."""

from __future__ import annotations

MANY = 100
"""Claims of fewer messages are over before they could be in the way of others."""
MAX_WAIT_MS = 1000
WAITS_IN_A_LOCK = 6
"""A worker does not look after its held messages during a wait, so this is a small part of their lock time."""
APART_SECONDS = 10.0


class Turns:
    """Only a worker whose last claim found all that it asked for waits: a message that comes alone is begun at once.

    Called by the claimer, in the process's thread.
    """

    def __init__(self, lock_ms: int) -> None:
        self.wait_ms = min(MAX_WAIT_MS, lock_ms // WAITS_IN_A_LOCK)
        self.more = False
        """The last claim took all that it asked for, so there may be more."""
        self._in_vain = False
        self._apart_until = 0.0

    def due(self, room: int, *, now: float) -> bool:
        """Whether the next claim, of up to ``room`` messages, has to wait for its turn."""
        return self.more and room >= MANY and now >= self._apart_until

    def learn(self, *, more: bool) -> None:
        """Takes note of a claim."""
        self.more = more

    def waited(self, milliseconds: int | None, *, now: float) -> float:
        """Takes note of a wait, and returns its seconds.  None: the turn did not come.  After two of those in a row
        another session keeps the turn, and the worker does without for a while.
        """
        if milliseconds is not None:
            self._in_vain = False
            return milliseconds / 1000
        if self._in_vain:
            self._apart_until = now + APART_SECONDS
        self._in_vain = not self._in_vain
        return self.wait_ms / 1000
