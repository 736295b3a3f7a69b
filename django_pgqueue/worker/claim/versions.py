"""Versions of deploys: a worker leaves a job that a later version has enqueued to the workers of that version."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from django_pgqueue import functions
from django_pgqueue.functions import Line
from django_pgqueue.values.versions import key

if TYPE_CHECKING:
    from collections.abc import Sequence

    from django_pgqueue.consumer.session import Session
    from django_pgqueue.functions import Deployed, Received

READ_EVERY_SECONDS = 1.0


class Versions:
    """Called by the process's thread alone.  Without a version, the worker takes everything, and asks nothing."""

    def __init__(self, session: Session, own: str | None) -> None:
        self.session = session
        self.own = own
        self._own_key = "" if own is None else key(own)
        self._deployed: list[Deployed] = []
        self._read_at = float("-inf")

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
        taken, left = [], []
        for message in messages:
            line, version = Line(message.queue, message.task or ""), message.version
            if version is not None and self.leaves(line, version, unknown=message.unknown):
                left.append((message, self._reason(version)))
            else:
                taken.append(message)
        return taken, left

    def leaves(self, line: Line, version: str | None, *, unknown: bool = False) -> bool:
        """Whether this worker leaves messages of the version to a living worker of it, or of a later one.  ``unknown``:
        some worker could not take them, so they are left to none that refuses all such messages of the task.
        """
        if version is None or not self._is_later(version):
            return False
        self._read()
        return self._lives(line, version, unknown=unknown)

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

    def _lives(self, line: Line, version: str, *, unknown: bool) -> bool:
        """Whether a worker lives that serves the queue, has the version or a later one, and may take the task."""
        wanted = key(version)
        for one in self._deployed:
            serves = (one.queues is None or line.queue in one.queues) and line.queue not in one.exclude_queues
            takes = line.task not in (one.lacks or ()) and not (unknown and line.task in (one.refuses or ()))
            if serves and takes and key(one.version) >= wanted:
                return True
        return False
