"""Maintenance that any worker does now and then.  It waits for no other session, and does the rest later."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import psycopg

from django_pgqueue import functions
from django_pgqueue.consumer.errors import BUSY_ERRORS, first_line, is_of_no_use, is_of_the_connection
from django_pgqueue.worker.upkeep import bloat

if TYPE_CHECKING:
    from django_pgqueue.consumer.background import Connect

logger = logging.getLogger("django_pgqueue.worker")

EVERY_SECONDS = 3600.0
AGAIN_SECONDS = 60.0
"""The time until the next round when something is left over: a lock was not free, the connection broke, or a step was
cancelled."""


MAX_RECOUNTED = 100
"""A transaction recounts at most this many channels: until its end no other session claims from them."""
LOCK_TIMEOUT = "50ms"
"""Other sessions wait behind a worker that waits for a lock, and so it waits only this long."""


Step = Callable[[psycopg.Connection[Any]], dict[str, str] | None]


class Maintenance:
    """Steps that are bounded, and each of them a transaction of its own.  Runs in the thread of a ``Background``."""

    name = "maintenance"
    max_again_seconds = 60.0

    def __init__(self, *, history_days: int | None, lake_days: int = functions.LAKE_DAYS) -> None:
        self.history_days = history_days
        self.lake_days = lake_days
        self.next_at = 0.0
        self.has_more = False
        """Set by a step that has to be repeated."""
        self.problems: dict[str, str] = {}
        """Problems that were logged and still exist: each is logged once."""

    def due_at(self) -> float:
        return self.next_at

    def do(self, connect: Connect) -> None:
        self.do_if_due(connect().connection)

    def do_if_due(self, connection: psycopg.Connection[Any]) -> None:
        if time.monotonic() < self.next_at:
            return
        self.next_at = time.monotonic() + EVERY_SECONDS
        problems: dict[str, str] = {}
        for what, step in self._steps():
            try:
                self.has_more = True
                while self.has_more:
                    self.has_more = False
                    with connection.transaction():
                        connection.execute(f"set local lock_timeout = '{LOCK_TIMEOUT}'")
                        problems |= step(connection) or {}
            except psycopg.errors.LockNotAvailable:
                self._later()
            except psycopg.Error as error:  # a worker without the rights of the tables' owner still does its jobs
                if is_of_the_connection(connection, error) or self._is_in_the_way(what, error):
                    self._later()
                if is_of_no_use(connection, error):
                    raise
                problems[what] = f"maintenance of {what} is not possible: {first_line(error)}"
        self._tell(problems)

    def _steps(self) -> list[tuple[str, Step]]:
        return [
            ("the history's next days", self._days),
            ("the history's partitions", self._partitions),
            ("the steps of durable tasks", self._durable),
            ("the slots of schedules", self._slots),
            ("the roll-up", self._rollup),
            ("channels", self._channels),
            ("counts of channels", self._counts),
            ("bloated tables", self._bloat),
        ]

    def _days(self, connection: psycopg.Connection[Any]) -> None:
        """Makes days and drops none: one that cannot be dropped, as a view needs it, must not keep others away."""
        self.has_more = functions.attempt_maintain(connection, days_kept=None) > 0

    def _partitions(self, connection: psycopg.Connection[Any]) -> dict[str, str] | None:
        before = {lake.id: lake for lake in functions.lakes(connection)}
        if functions.attempt_maintain(connection, days_kept=self.history_days, lake_days=self.lake_days):
            self.has_more = True  # each call does a part, in a transaction of its own
            for lake in functions.lakes(connection):
                if lake.id in before and (more := lake.missed_attempts - before[lake.id].missed_attempts):
                    logger.error(
                        "dropped history that was not exported lake=%s attempts=%s until=%s",
                        lake.location,
                        more,
                        lake.missed_until,
                    )
        elif functions.attempt_overdue(connection, days_kept=self.history_days):
            kept = None if self.history_days is None else self.history_days + self.lake_days
            if not before or functions.attempt_overdue(connection, days_kept=kept):
                self._later()  # a lock was not free, and nothing waits for a lake any more
            return {f"lake {lake.id}": self._waits(lake) for lake in before.values() if is_behind(lake)}
        return None

    def _waits(self, lake: functions.LakeRow) -> str:
        return (
            f"History that is older than HISTORY_DAYS waits for a lake, for LAKE_DAYS={self.lake_days} days at most. "
            f"{lake.location} was last exported {lake.exported_at or 'never'}. Run manage.py qpipeline export, or "
            "qpipeline forget if it is given up."
        )

    def _durable(self, connection: psycopg.Connection[Any]) -> None:
        changed = functions.step_maintain(connection, history_days=self.history_days, lake_days=self.lake_days)
        self.has_more = changed > 0

    def _slots(self, connection: psycopg.Connection[Any]) -> None:
        functions.schedule_prune(connection)

    def _rollup(self, connection: psycopg.Connection[Any]) -> None:
        self.has_more = functions.rollup_prune(connection) > 0

    def _channels(self, connection: psycopg.Connection[Any]) -> None:
        functions.channel_prune(connection)

    def _counts(self, connection: psycopg.Connection[Any]) -> None:
        """Recounts channels: after a restore, a truncate, or with a trigger off, a limit may hold its channel back
        without end, or no dequeue may know of messages.
        """
        miscounted = functions.channels_miscounted(connection, limit=MAX_RECOUNTED)
        unseen = functions.channels_unseen(connection, limit=MAX_RECOUNTED)
        channels = sorted({channel for channel, _, _ in miscounted}.union(unseen))[:MAX_RECOUNTED]
        for channel in channels:
            for one in functions.channel_repair(connection, channel):
                logger.warning("recounted channel=%s running=%s, not %s", one.channel, one.after, one.before)
            if channel in unseen:
                logger.warning("found messages that no worker knew of channel=%s", channel)
        self.has_more = len(channels) == MAX_RECOUNTED

    def _bloat(self, connection: psycopg.Connection[Any]) -> dict[str, str]:
        return {f"{one.kind} {one.name}": f"{one} See manage.py qdoctor." for one in bloat.found(connection)}

    def _is_in_the_way(self, what: str, error: psycopg.Error) -> bool:
        """Whether somebody has cancelled the step, say.  A limit of the role cancels it each time."""
        return isinstance(error, BUSY_ERRORS) and what not in self.problems

    def _later(self) -> None:
        self.next_at = time.monotonic() + AGAIN_SECONDS

    def _tell(self, problems: dict[str, str]) -> None:
        for name, words in problems.items():
            if name not in self.problems:
                logger.warning("%s", words)
        self.problems = problems


def is_behind(lake: functions.LakeRow) -> bool:
    """Whether old history may wait for this lake: old is what has ended days ago."""
    return lake.lag_seconds is None or lake.lag_seconds > EVERY_SECONDS
