"""The database's clock, read without asking the database."""

from __future__ import annotations

from time import monotonic_ns, time_ns
from typing import TYPE_CHECKING

from django_pgqueue.values.times import microseconds

if TYPE_CHECKING:
    import datetime as dt
    from collections.abc import Callable

MAX_AHEAD_US = 1_000_000
"""A clock that is further ahead was set by a server whose own clock was wrong, and has been put back since."""


class DatabaseClock:
    """Goes on from a time of the database, by this machine's monotonic clock.  Before that it has this machine's time.

    It returns microseconds since 1970: each job reads it twice, and to make a datetime takes several times as long.

    The process's thread sets it, at the start and after each claim.  The slots read it.
    """

    def __init__(self) -> None:
        self._zero = time_ns() // 1000 - monotonic_ns() // 1000
        """The time at which the monotonic clock was 0."""

    def start(self, now: dt.datetime) -> None:
        self._zero = microseconds(now) - monotonic_ns() // 1000

    def correct(self, now: dt.datetime, *, asked: float) -> None:
        """Sets the clock by a time of the database, which was asked for at ``asked``, by the monotonic clock.

        It sets it to a later time only, because that time is older by its way to here: unless this clock was far ahead
        even of what the database answered to a question of now.
        """
        time = microseconds(now)
        zero = time - monotonic_ns() // 1000
        if zero > self._zero or self._zero > time - int(asked * 1_000_000) + MAX_AHEAD_US:
            self._zero = zero

    def __call__(self) -> int:
        return self._zero + monotonic_ns() // 1000

    def of_a_job(self) -> Callable[[], int]:
        """Returns a clock that goes back with no other: no job ends before it started."""
        zero = self._zero
        return lambda: (zero if zero > self._zero else self._zero) + monotonic_ns() // 1000  # noqa: FURB136 -- quicker
