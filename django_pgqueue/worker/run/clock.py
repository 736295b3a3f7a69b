"""The database's clock, read without asking the database."""

from __future__ import annotations

from time import monotonic_ns, time_ns
from typing import TYPE_CHECKING

from django_pgqueue.values.times import microseconds

if TYPE_CHECKING:
    import datetime as dt


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

    def correct(self, now: dt.datetime) -> None:
        """Sets the clock to a later time only.  A time of the database is older by its way to here; and with a clock
        that never goes back no job ends before it started.
        """
        self._zero = max(self._zero, microseconds(now) - monotonic_ns() // 1000)

    def __call__(self) -> int:
        return self._zero + monotonic_ns() // 1000
