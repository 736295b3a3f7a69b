"""The database's clock, read without asking the database."""

from __future__ import annotations

import datetime as dt
from datetime import timedelta
from time import monotonic


class DatabaseClock:
    """Goes on from a time of the database, by this machine's monotonic clock.  Before that it has this machine's time.

    The process's thread sets it, at the start and after each claim.  The slots read it.
    """

    def __init__(self) -> None:
        self.start(dt.datetime.now(dt.UTC))

    def start(self, now: dt.datetime) -> None:
        self._base = (now, monotonic())

    def correct(self, now: dt.datetime) -> None:
        """Sets the clock to a later time only.  A time of the database is older by its way to here; and with a clock
        that never goes back no job ends before it started.
        """
        if now > self():
            self._base = (now, monotonic())  # one assignment: slots read at the same time

    def __call__(self) -> dt.datetime:
        base, at = self._base
        return base + timedelta(0, monotonic() - at)  # seconds by name, and names by a module, take half as long again
