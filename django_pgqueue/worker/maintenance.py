"""What any worker does for all, now and then: it waits for nobody, and what it could not do is done later."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from typing import Any

import psycopg

from django_pgqueue import functions
from django_pgqueue.overview import bloat
from django_pgqueue.worker.connection import TROUBLE

logger = logging.getLogger("django_pgqueue.worker")

EVERY_SECONDS = 3600.0
AGAIN_SECONDS = 60.0
"""When something was left over: a lock that was not to be had, or more than one call does."""


LOCK_TIMEOUT = "50ms"
"""Nobody waits for long for a worker that waits for a lock."""


Step = Callable[[psycopg.Connection[Any]], dict[str, str] | None]


class Maintenance:
    def __init__(self, *, history_days: int | None) -> None:
        self.history_days = history_days
        self.next_at = 0.0
        self.told: set[str] = set()
        """What was warned of and is still so: once is enough."""

    def do_if_due(self, connection: psycopg.Connection[Any]) -> None:
        if time.monotonic() < self.next_at:
            return
        self.next_at = time.monotonic() + EVERY_SECONDS
        problems: dict[str, str] = {}
        for what, step in self._steps():
            try:
                with connection.transaction():
                    connection.execute(f"set local lock_timeout = '{LOCK_TIMEOUT}'")
                    problems |= step(connection) or {}
            except psycopg.errors.LockNotAvailable:
                self._later()
            except TROUBLE:
                raise  # of the connection: the worker knows what to do
            except psycopg.Error as error:  # a worker without the rights of the tables' owner still does its jobs
                reason = str(error).strip().partition("\n")[0]
                problems[what] = f"maintenance of {what} is not possible: {reason}"
        self._tell(problems)

    def _steps(self) -> list[tuple[str, Step]]:
        return [
            ("the history's partitions", self._partitions),
            ("the slots of schedules", self._slots),
            ("channels", self._channels),
            ("tables that are too large", self._bloat),
        ]

    def _partitions(self, connection: psycopg.Connection[Any]) -> None:
        functions.attempt_maintain(connection, days_kept=self.history_days)
        if functions.attempt_overdue(connection, days_kept=self.history_days):
            self._later()

    def _slots(self, connection: psycopg.Connection[Any]) -> None:
        functions.schedule_prune(connection)

    def _channels(self, connection: psycopg.Connection[Any]) -> None:
        functions.channel_prune(connection)

    def _bloat(self, connection: psycopg.Connection[Any]) -> dict[str, str]:
        return {f"{one.kind} {one.name}": f"{one} See manage.py qdoctor." for one in bloat.found(connection)}

    def _later(self) -> None:
        self.next_at = time.monotonic() + AGAIN_SECONDS

    def _tell(self, problems: dict[str, str]) -> None:
        for name, words in problems.items():
            if name not in self.told:
                logger.warning("%s", words)
        self.told = set(problems)
