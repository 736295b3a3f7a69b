"""Writes the numbers of a process to its place on the board."""

from __future__ import annotations

import logging
import time
from typing import TYPE_CHECKING

from django_pgqueue.worker.health.counters import Counters

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from django_pgqueue.worker.health.shared_state import ProcessState
    from django_pgqueue.worker.run.outcome import EndedAttempt

logger = logging.getLogger("django_pgqueue.worker")

WRITE_EVERY_SECONDS = 0.5


class Reporter:
    """Called by the process's thread alone: at the beginning of each turn, after each claim, and when ends are
    recorded.
    """

    def __init__(self, place: ProcessState) -> None:
        self.place = place
        self.tally = Counters(place.read())
        self.looked = 0.0
        self._next_write = 0.0
        self._has_news = False
        self._has_complained = False

    def turned(self, *, running: int, connected: bool, stopping: bool, blocked_seconds: float, died: int) -> None:
        """Called at the beginning of each turn: what the turn begins may take its time."""
        now = time.monotonic()
        self.place.say(
            turned=now, looked=self.looked, running=running, connected=connected, stopping=stopping,
            blocked_seconds=blocked_seconds, died=died,
        )  # fmt: skip
        if self._has_news and now >= self._next_write:
            self.write()

    def claimed(self, found: int, seconds: float) -> None:
        self.looked = time.monotonic()
        self.tally.claim(found, seconds)
        self._has_news = True

    def recorded(self, ended: Sequence[EndedAttempt], otherwise: Mapping[tuple[int, int], str]) -> None:
        self.tally.record(ended, otherwise)
        self._has_news = True
        if time.monotonic() >= self._next_write:  # the next turn of a worker without work may be a second away
            self.write()

    def reconnected(self) -> None:
        self.tally.reconnects += 1
        self._has_news = True

    def write(self) -> None:
        self._next_write = time.monotonic() + WRITE_EVERY_SECONDS
        self._has_news = False
        if not self.place.write(self.tally.state) and not self._has_complained:
            self._has_complained = True
            logger.warning("The names of tasks and queues are too long for the board: metrics stay as they are.")


class NoReporter(Reporter):
    """The reporter of a process without monitoring."""

    def __init__(self) -> None:
        """Has no place in the shared state."""

    def turned(self, **_: object) -> None: ...

    def claimed(self, found: int, seconds: float) -> None: ...

    def recorded(self, ended: Sequence[EndedAttempt], otherwise: Mapping[tuple[int, int], str]) -> None: ...

    def reconnected(self) -> None: ...

    def write(self) -> None: ...
