"""Backoff: the wait before the next attempt.  Arithmetic only."""

from __future__ import annotations

import datetime as dt
import math
import random
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from django_pgqueue.compat import AnyTaskResult

Backoff = Callable[[BaseException, Any], float | dt.timedelta | None]
"""``(exception, task_result) -> wait`` until the next attempt: seconds or a timedelta; None gives the message up."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Exponential:
    """Waits ``base`` seconds after the first attempt and ``factor`` times as long after each further one.

    No wait is longer than ``longest``.  ``jitter`` spreads the waits by that share in both directions, so that jobs
    that failed together do not run again at the same time.

    >>> Exponential(base=1, jitter=0).seconds(attempt=4)
    8.0
    """

    base: float = 1.0
    factor: float = 2.0
    longest: float = 3600.0
    jitter: float = 0.25

    def __call__(self, exception: BaseException, task_result: AnyTaskResult) -> float:  # noqa: ARG002
        return self.seconds(attempt=task_result.attempts)

    def seconds(self, *, attempt: int) -> float:
        # The middle of the longest wait is shorter than ``longest``, so that jitter has room in both directions.
        middle = min(self.longest / (1 + self.jitter), self._unlimited(attempt))
        spread = 1 + random.uniform(-self.jitter, self.jitter)  # noqa: S311 -- spreads load, keeps no secret
        return min(self.longest, middle * spread)

    def _unlimited(self, attempt: int) -> float:
        try:
            return self.base * float(self.factor) ** (attempt - 1)
        except OverflowError:
            return math.inf


DEFAULT = Exponential()

ASKED_ATTEMPTS = 5
"""Attempts of a task that raises Retry and has no max_attempts."""
