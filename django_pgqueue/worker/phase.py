"""The phase of a process: it works, it retires, or it stops."""

from __future__ import annotations

import time


class Phase:
    """Read by the process's thread in each step.  A signal handler may call ``stop``."""

    def __init__(self, grace_seconds: float) -> None:
        self.grace_seconds = grace_seconds
        self.is_retiring = False
        """Another process has taken its place: this one ends what it has begun, and leaves."""
        self.stop_by: float | None = None
        """When running jobs have to have ended, by the monotonic clock.  None: nobody has asked the process to stop."""
        self.stops_now = False
        """It leaves without waiting for any job."""
        self._is_told = False

    def stop(self, *, again: bool = True) -> None:
        """The process begins nothing new, and running jobs may end within the grace.  A second call stops it now,
        unless ``again=False`` marks it as the same request.
        """
        if self.stop_by is None:
            self.stop_by = time.monotonic() + self.grace_seconds
        elif again:
            self.stops_now = True

    @property
    def is_stopping(self) -> bool:
        return self.stop_by is not None

    @property
    def left_seconds(self) -> float:
        """How long running jobs may still take; infinite while nobody has asked the process to stop."""
        if self.stop_by is None:
            return float("inf")
        return 0.0 if self.stops_now else max(0.0, self.stop_by - time.monotonic())

    @property
    def is_leaving(self) -> bool:
        """Whether the process claims nothing more."""
        return self.is_retiring or self.is_stopping

    @property
    def has_to_end(self) -> bool:
        """Whether the process leaves even if jobs run."""
        return self.stops_now or (self.stop_by is not None and time.monotonic() > self.stop_by)

    def begins_to_stop(self) -> bool:
        """Returns once whether the process was asked to stop."""
        begins, self._is_told = self.is_stopping and not self._is_told, self._is_told or self.is_stopping
        return begins
