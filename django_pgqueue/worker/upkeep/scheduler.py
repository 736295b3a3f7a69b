"""Turns schedules into messages.  Every worker does it, without a leader: a unique insert uses each slot once."""

from __future__ import annotations

import logging
import time
from typing import TYPE_CHECKING

import psycopg

from django_pgqueue import functions
from django_pgqueue.backend.lookup import version_of
from django_pgqueue.backend.schedules import channel_and_key, check_public, declarations, headers, max_lost
from django_pgqueue.consumer.errors import BUSY_ERRORS, first_line, is_wraparound
from django_pgqueue.exceptions import InvalidSchedule, PgQueueError
from django_pgqueue.logs import in_a_line
from django_pgqueue.tasks import schedule as recurrence
from django_pgqueue.values import content, times
from django_pgqueue.values.times import EpochDateTime

if TYPE_CHECKING:
    import datetime as dt

    from django_pgqueue.backend.schedules import ScheduleDeclaration

logger = logging.getLogger("django_pgqueue.worker")

LOOK_EVERY_SECONDS = 10.0
"""How soon a worker sees a schedule that was made or changed by hand."""
LOOK_AGAIN_SECONDS = 0.1
"""The wait after a look that found something: there may be more, and a worker that could not fire it must not ask a
thousand times a second."""
MAX_FIRED = 50
"""Schedules that one look fires: claims and ends wait for it, in the same thread."""
BUSY_SECONDS = 5.0
DECLARE_EVERY_SECONDS = 60.0
"""How soon a schedule that was changed or deleted by hand is again as the code declares it."""
# Errors of the row itself, which will come again; any other may be gone the next time.
UNUSABLE = (psycopg.DataError, psycopg.IntegrityError, psycopg.errors.ProgramLimitExceeded)


class Scheduler:
    """Called by ``Upkeep`` in each turn, in the process's thread."""

    def __init__(self, database: str, *, worker: str | None = None, off: bool = False) -> None:
        self.database = database
        self.worker = worker
        self.declared: dict[str, ScheduleDeclaration] | None = None
        self.next_look = float("inf") if off else 0.0
        self.next_declare = 0.0
        self.waiting: set[str] = set()
        """Schedules that are not yet as this code declares them."""
        self._busy: dict[str, float] = {}
        """When to try again, for schedules that another session has locked."""
        self._missed: set[str] = set()
        """Overdue schedules that fired nothing when it was their turn, as another session has them: others go first."""
        self._told: set[str] = set()

    def look_if_due(self, connection: functions.Connection) -> bool:
        """Fires the schedules that are due.  Returns whether there are new messages."""
        if time.monotonic() < self.next_look:
            return False
        self.next_look = time.monotonic() + LOOK_AGAIN_SECONDS  # also after an error
        if time.monotonic() >= self.next_declare:
            self.next_declare = time.monotonic() + DECLARE_EVERY_SECONDS
            self._declare(connection, self._declarations())
        fired = self._look(connection)
        if self.waiting:  # after what was due
            self._declare_waiting(connection)
        return fired

    def fired(self) -> list[str] | None:
        """Returns the names of the declared schedules that this worker fires.  None: it has yet to declare some."""
        return None if self.declared is None or self.waiting else list(self.declared)

    def renamed(self, worker: str) -> None:
        """Notes another name of the worker, under which it declares all once more."""
        if self.worker is not None:
            self.worker, self.next_declare = worker, 0.0

    def leave(self, connection: functions.Connection) -> None:
        """Withdraws what this worker declares, because it fires no more: the declarations of others need not wait until
        its last job has ended.
        """
        if self.worker is not None:
            functions.schedule_undeclare(connection, self.worker)
            self.worker = None

    def _declarations(self) -> dict[str, ScheduleDeclaration]:
        if self.declared is None:
            self.declared = declarations(self.database)
        return self.declared

    def _declare_waiting(self, connection: functions.Connection) -> None:
        declared, before = self._declarations(), self.waiting
        self._declare(connection, {name: declared[name] for name in before})
        if before - self.waiting:  # with another rule it is due at another time
            self.next_look = time.monotonic() + LOOK_AGAIN_SECONDS
        for name in self.waiting - self._told:
            logger.info(
                "schedule name=%s is declared differently by other workers: their declaration counts until the last "
                "of them leaves",
                name,
            )
        self._told = self.waiting

    def _declare(self, connection: functions.Connection, declared: dict[str, ScheduleDeclaration]) -> None:
        """Brings the table up to date with what the project's code declares."""
        now = functions.now(connection)
        self.waiting = {
            name for name, declaration in declared.items() if not self._is_declared(connection, declaration, now)
        }

    def _is_declared(self, connection: functions.Connection, declared: ScheduleDeclaration, now: dt.datetime) -> bool:
        """Declares a schedule.  Returns whether there is nothing more to do for now."""
        recurrence, rule = declared.recurrence, declared.recurrence.rule
        call = {"args": list(recurrence.args), "kwargs": recurrence.kwargs}
        try:
            check_public(declared.task.module_path)
            return functions.schedule_declare(
                connection,
                declared.name,
                task=declared.task,
                next_at=times.not_before(rule.first_after(now)),
                cron=rule.cron,
                interval_ms=rule.interval_ms,
                timezone=rule.timezone,
                catch_up=recurrence.catch_up,
                content=content.encode(call, max_bytes=declared.max_content_bytes, what="its call"),
                max_attempts=declared.max_attempts,
                worker=self.worker,
            )
        except BUSY_ERRORS:  # another session edits it: there is another look in a minute
            return True
        except (PgQueueError, *UNUSABLE) as error:
            if is_wraparound(error):
                raise
            logger.error("schedule name=%s cannot be declared: %s", declared.name, error)  # noqa: TRY400
            return True

    def _look(self, connection: functions.Connection) -> bool:
        known, now_ms = functions.schedules(connection)
        # A worker fires only the declared schedules of its own code: one of another version may not know the task.
        ours = [row for row in known if not row.declared or row.name in (self.declared or ())]
        now = time.monotonic()
        overdue = [row for row in ours if row.next_at <= now_ms and self._busy.get(row.name, 0.0) <= now]
        overdue.sort(key=lambda row: row.name in self._missed)
        some, rest = overdue[:MAX_FIRED], overdue[MAX_FIRED:]
        fired = {row.name: self._fire(connection, row, now_ms) for row in some}
        self._missed |= {name for name, message_ids in fired.items() if not message_ids}
        goes_on = any(row.name not in self._missed for row in rest)
        if not goes_on:  # the next turn begins
            self._missed = set(fired)
        next_at = min((row.next_at for row in ours if row.next_at > now_ms), default=None)
        wait = LOOK_AGAIN_SECONDS if overdue else LOOK_EVERY_SECONDS
        if goes_on:
            wait = 0.0
        elif next_at is not None:
            wait = min(wait, (next_at - now_ms) / 1000)
        self.next_look = time.monotonic() + wait
        return any(fired.values())

    def _fire(self, connection: functions.Connection, row: functions.KnownSchedule, now_ms: int) -> list[int]:
        now, first = EpochDateTime.from_ms(now_ms), EpochDateTime.from_ms(row.next_at)
        try:
            rule = recurrence.Rule(cron=row.cron, interval_ms=row.interval_ms, timezone=row.timezone)
            slots, later = recurrence.due(rule, row.catch_up, first=first, now=now)
            channel, key = channel_and_key(connection, row)
            fired = functions.schedule_fire(
                connection,
                row.name,
                slots=[times.not_before(slot) for slot in slots],
                expected_at=row.next_at,
                next_at=times.not_before(later),
                unique=key,
                channel=channel,
                max_lost=max_lost(row.task),
                version=version_of(self.database),
                headers=headers(row.task),
            )
        except BUSY_ERRORS as error:  # the other schedules do not wait for it
            if row.name not in self._busy:
                logger.warning("schedule name=%s is not fired yet: %s", row.name, first_line(error))
            self._busy[row.name] = time.monotonic() + BUSY_SECONDS
            return []
        except (InvalidSchedule, *UNUSABLE) as error:
            if is_wraparound(error):
                raise
            # The reason says it all; a traceback through cronsim would not help.
            logger.error("schedule name=%s cannot be used and is paused: %s", in_a_line(row.name), error)  # noqa: TRY400
            functions.schedule_pause(connection, row.name)
            return []
        self._busy.pop(row.name, None)
        for message_id in fired:
            logger.info("scheduled id=%s task=%s schedule=%s", message_id, row.task, row.name)
        return fired
