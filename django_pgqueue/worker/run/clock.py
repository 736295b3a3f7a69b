"""The database's clock, read without asking the database."""

from __future__ import annotations

import datetime as dt
import time


class DatabaseClock:
    """Goes on from a time that the database told, by this machine's monotonic clock.  Before that it has this machine's
    time.
    """

    def __init__(self) -> None:
        self.start(dt.datetime.now(dt.UTC))

    def start(self, now: dt.datetime) -> None:
        self._told = (now, time.monotonic())

    def correct(self, now: dt.datetime) -> None:
        """What the database tells is older by the way it took here, so only a later time is news; and a clock that
        never goes back lets no job end before it started."""
        if now > self():
            self._told = (now, time.monotonic())  # one assignment: slots read at the same time

    def __call__(self) -> dt.datetime:
        told, at = self._told
        return told + dt.timedelta(seconds=time.monotonic() - at)
