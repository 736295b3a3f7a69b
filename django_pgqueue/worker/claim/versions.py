"""Versions of deploys: a worker leaves a job that a later version has enqueued to the workers of that version."""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import TYPE_CHECKING

from django_pgqueue import functions
from django_pgqueue.functions import Line
from django_pgqueue.values.versions import key

if TYPE_CHECKING:
    from collections.abc import Sequence

    from django_pgqueue.consumer.session import Session
    from django_pgqueue.functions import Deployed, Received

READ_EVERY_SECONDS = 1.0
MIN_WAIT_SECONDS, MAX_WAIT_SECONDS = 1.0, 60.0
MAX_LEFT = 1000
"""So many lines are remembered; a line that was forgotten is tried once more."""
FEW_LACKS = 50
"""A worker that has recorded so many tasks may lack others, too."""


@dataclass(slots=True)
class Left:
    """A line of parked messages that was left to workers of a later version."""

    version: str
    wait_seconds: float
    until: float


class Versions:
    """Called by the process's thread alone.  Without a version, the worker takes everything, and asks nothing."""

    def __init__(self, session: Session, own: str | None) -> None:
        self.session = session
        self.own = own
        self._own_key = "" if own is None else key(own)
        self._deployed: list[Deployed] = []
        self._read_at = float("-inf")
        self._left: dict[Line, Left] = {}

    # Claimed messages

    def split(self, claimed: list[Received]) -> tuple[list[Received], list[Received]]:
        """Returns the claimed messages without those that a later version than the worker's has enqueued, and these."""
        if self.own is None:
            return claimed, []
        later = {one.id for one in claimed if one.version is not None and self._is_later(one.version)}
        if not later:
            return claimed, []
        return [one for one in claimed if one.id not in later], [one for one in claimed if one.id in later]

    def sort(self, messages: Sequence[Received]) -> tuple[list[Received], list[tuple[Received, str]]]:
        """Returns those of later messages that this worker takes, because no worker for them lives, and those that it
        leaves to one, with the reasons.
        """
        self._read()
        taken, left, versions = [], [], {}
        for message in messages:
            line, version = Line(message.queue, message.task or ""), message.version or ""
            if self._lives(line, version):
                left.append((message, self._reason(version)))
                versions[line] = version
            else:
                taken.append(message)
        now = time.monotonic()
        for line, version in versions.items():
            self._leave(line, version, now)
        return taken, left

    # Parked messages

    def leaves(self, line: Line, version: str | None, now: float) -> bool:
        """Whether this worker leaves parked messages to others for now.  Now and then it tries a few: there may be
        others among them.  ``version``: that of the message that would be tried first.
        """
        if line not in self._left:
            if version is None or not self._is_later(version):
                return False
            self._leave(line, version, now)
        left = self._left[line]
        self._read()
        if self._lives(line, left.version):
            return now < left.until
        del self._left[line]
        return False

    def waits(self, line: Line, now: float) -> bool:
        """Whether it was left to others a moment ago."""
        left = self._left.get(line)
        return left is not None and now < left.until

    def _leave(self, line: Line, version: str, now: float) -> None:
        left = self._left.get(line)
        if left is None:
            if len(self._left) >= MAX_LEFT:
                self._left.clear()
            self._left[line] = Left(version, MIN_WAIT_SECONDS, now + MIN_WAIT_SECONDS)
        elif now >= left.until:
            left.version = version
            left.wait_seconds = min(MAX_WAIT_SECONDS, 2 * left.wait_seconds)
            left.until = now + left.wait_seconds

    def _is_later(self, version: str) -> bool:
        return self.own is not None and version != self.own and key(version) > self._own_key

    def _reason(self, version: str) -> str:
        return f"Version {version} has enqueued it, and a worker of version {self.own} leaves it to a later one."

    # Living workers

    def _read(self) -> None:
        now = time.monotonic()
        if now >= self._read_at + READ_EVERY_SECONDS:
            self._deployed = functions.workers_deployed(self.session.statements)
            self._read_at = now

    def _lives(self, line: Line, version: str) -> bool:
        """Whether a worker lives that serves the queue, has the version or a later one, and may know the task."""
        wanted = key(version)
        for one in self._deployed:
            serves = (one.queues is None or line.queue in one.queues) and line.queue not in one.exclude_queues
            lacks = one.lacks or []
            if serves and line.task not in lacks and len(lacks) < FEW_LACKS and key(one.version) >= wanted:
                return True
        return False
