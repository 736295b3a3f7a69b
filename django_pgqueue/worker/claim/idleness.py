"""For how long a worker has found nothing: with ``--burst`` and ``--exit-when-idle`` it leaves after a time of that."""

from __future__ import annotations

AGAIN_SECONDS = 1.0
"""The wait for another look, where the one that was to decide has left places out."""


class Idleness:
    """Called by the claimer, in the process's thread.

    The time counts from a look that found nothing to the last such look, and not to the present: a worker never leaves
    without having looked when its time was up.
    """

    def __init__(self, leaves_after_seconds: float | None) -> None:
        """None: the worker never leaves.  0: it leaves after the first look that finds nothing."""
        self.leaves_after_seconds = leaves_after_seconds
        self._since: float | None = None
        self._seconds = 0.0
        self._again_at = 0.0

    @property
    def is_over(self) -> bool:
        """Whether it is time to leave."""
        if self.leaves_after_seconds is None or self._since is None:
            return False
        return self._seconds >= self.leaves_after_seconds

    def due_at(self) -> float:
        """Returns when the look is due after which the worker may leave."""
        if self.leaves_after_seconds is None or self._since is None or self.is_over:
            return float("inf")
        return max(self._since + self.leaves_after_seconds, self._again_at)

    def looked(self, *, found: bool, everywhere: bool, now: float) -> None:
        """Takes note of a look.  One that left places out says nothing, unless it has found something."""
        if found:
            self.worked()
        elif everywhere:
            self._since = now if self._since is None else self._since
            self._seconds = now - self._since
        else:
            self._again_at = now + AGAIN_SECONDS

    def worked(self) -> None:
        """Takes note that something runs, or has ended: that may have left something to do."""
        self._since, self._seconds = None, 0.0
