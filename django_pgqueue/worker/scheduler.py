"""Turns schedules into messages.  Every worker does it, and none leads: a slot is used once, by a unique insert."""

from __future__ import annotations

import logging
import time
from typing import TYPE_CHECKING

import psycopg

from django_pgqueue import content, functions, recurrence, schedule
from django_pgqueue.declarations import check_public, columns_of, declarations
from django_pgqueue.exceptions import InvalidSchedule, PgQueueError
from django_pgqueue.fields import EpochDateTime
from django_pgqueue.logs import in_a_line
from django_pgqueue.worker.database_errors import BUSY_ERRORS, first_line

if TYPE_CHECKING:
    from django_pgqueue.declarations import Declaration

logger = logging.getLogger("django_pgqueue.worker")

LOOK_EVERY_SECONDS = 10.0
"""How soon a schedule that was made or changed by hand is seen."""
LOOK_AGAIN_SECONDS = 0.1
"""Where there was something there may be more, and who could not fire it must not ask a thousand times a second."""
BUSY_SECONDS = 5.0
DECLARE_EVERY_SECONDS = 60.0
"""While versions change, each says what it declares: soon after the last old worker has left, the new ones count."""
# What is wrong with the row itself and will be wrong again; anything else may be better the next time.
UNUSABLE = (psycopg.DataError, psycopg.IntegrityError, psycopg.errors.ProgramLimitExceeded)


class Scheduler:
    def __init__(self, database: str, *, off: bool = False) -> None:
        self.database = database
        self.declared: dict[str, Declaration] | None = None
        self.next_look = float("inf") if off else 0.0
        self.next_declare = 0.0
        self._busy: dict[str, float] = {}
        """When to try those again that somebody else has locked."""

    def look_if_due(self, connection: functions.Connection) -> bool:
        """Whether there are new messages."""
        if time.monotonic() < self.next_look:
            return False
        self.next_look = time.monotonic() + LOOK_AGAIN_SECONDS  # also after an error
        if time.monotonic() >= self.next_declare:
            self.next_declare = time.monotonic() + DECLARE_EVERY_SECONDS
            self._declare(connection)
        return self._look(connection)

    def _declare(self, connection: functions.Connection) -> None:
        """Brings the table up to date with what the project's code declares."""
        if self.declared is None:
            self.declared = declarations(self.database)
        now = functions.now(connection)
        for name, declared in self.declared.items():
            call = {"args": list(declared.recurrence.args), "kwargs": declared.recurrence.kwargs}
            try:
                check_public(declared.task.module_path)
                functions.schedule_declare(
                    connection,
                    name,
                    task=declared.task,
                    declared=declared.recurrence,
                    content=content.encode(call, max_bytes=declared.max_content_bytes, what="its call"),
                    next_at=schedule.not_before(declared.recurrence.rule.first_after(now)),
                    max_attempts=declared.max_attempts,
                )
            except BUSY_ERRORS:  # somebody edits it: there is another look in a minute
                continue
            except (PgQueueError, *UNUSABLE) as error:
                logger.error("schedule name=%s can not be declared: %s", name, error)  # noqa: TRY400

    def _look(self, connection: functions.Connection) -> bool:
        known, now_ms = functions.schedules(connection)
        # What code declares is fired by who runs that code: a worker of another version may not know the task.
        ours = [row for row in known if not row.declared or row.name in (self.declared or ())]
        now = time.monotonic()
        overdue = [row for row in ours if row.next_at <= now_ms and self._busy.get(row.name, 0.0) <= now]
        fired = [message_id for row in overdue for message_id in self._fire(connection, row, now_ms)]
        next_at = min((row.next_at for row in ours if row.next_at > now_ms), default=None)
        wait = LOOK_AGAIN_SECONDS if overdue else LOOK_EVERY_SECONDS
        if next_at is not None:
            wait = min(wait, (next_at - now_ms) / 1000)
        self.next_look = time.monotonic() + wait
        return bool(fired)

    def _fire(self, connection: functions.Connection, row: functions.KnownSchedule, now_ms: int) -> list[int]:
        now, first = EpochDateTime.from_ms(now_ms), EpochDateTime.from_ms(row.next_at)
        try:
            rule = recurrence.Rule(cron=row.cron, interval_ms=row.interval_ms, timezone=row.timezone)
            slots, later = recurrence.due(rule, row.catch_up, first=first, now=now)
            fired = functions.schedule_fire(
                connection,
                row.name,
                slots=[schedule.not_before(slot) for slot in slots],
                expected_at=row.next_at,
                next_at=schedule.not_before(later),
                **columns_of(connection, row),
            )
        except BUSY_ERRORS as error:  # the other schedules do not wait for it
            if row.name not in self._busy:
                logger.warning("schedule name=%s is not fired yet: %s", row.name, first_line(error))
            self._busy[row.name] = time.monotonic() + BUSY_SECONDS
            return []
        except (InvalidSchedule, *UNUSABLE) as error:
            # The reason says it all; a traceback through cronsim would not help.
            logger.error("schedule name=%s can not be used and is paused: %s", in_a_line(row.name), error)  # noqa: TRY400
            functions.schedule_pause(connection, row.name)
            return []
        self._busy.pop(row.name, None)
        for message_id in fired:
            logger.info("scheduled id=%s task=%s schedule=%s", message_id, row.task, row.name)
        return fired
