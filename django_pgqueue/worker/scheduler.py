"""Turns schedules into messages.  Every worker does it, and none leads: a slot is used once, by a unique insert."""

from __future__ import annotations

import logging
import time
from typing import TYPE_CHECKING

from django_pgqueue import content, functions, recurrence, registry, schedule
from django_pgqueue.exceptions import InvalidSchedule
from django_pgqueue.fields import EpochDateTime

if TYPE_CHECKING:
    from collections.abc import Iterator

    from django_pgqueue.backend import PgQueueBackend
    from django_pgqueue.recurrence import Recurrence

logger = logging.getLogger("django_pgqueue.worker")

LOOK_EVERY_SECONDS = 10.0
"""How soon a schedule that was made or changed by hand is seen."""


class Scheduler:
    def __init__(self, backend: PgQueueBackend) -> None:
        self.backend = backend
        self.next_look = 0.0

    def declare(self, connection: functions.Connection) -> None:
        """Brings the table up to date with what the project's code declares."""
        now = functions.now(connection)
        for task in registry.scheduled(self.backend.alias):
            for name, declared in named(task):
                call = {"args": list(declared.args), "kwargs": declared.kwargs}
                limit = self.backend.settings.max_content_bytes
                functions.schedule_declare(
                    connection,
                    name,
                    task=task,
                    declared=declared,
                    content=content.encode(call, max_bytes=limit, what=f"the call of schedule {name!r}"),
                    next_at=schedule.not_before(next(declared.rule.after(now))),
                    max_attempts=self.backend.max_attempts(task),
                )

    def look_if_due(self, connection: functions.Connection) -> bool:
        """Whether there are new messages."""
        if time.monotonic() < self.next_look:
            return False
        overdue, next_at, now_ms = functions.schedules_due(connection)
        for row in overdue:
            self._fire(connection, row, now_ms)
        # Where there was something, there may be more, and there is a new next one: look again at once.
        wait = 0.0 if overdue else LOOK_EVERY_SECONDS
        if next_at is not None:
            wait = min(wait, max(0, next_at - now_ms) / 1000)
        self.next_look = time.monotonic() + wait
        return bool(overdue)

    def _fire(self, connection: functions.Connection, row: functions.DueSchedule, now_ms: int) -> None:
        now, first = EpochDateTime.from_ms(now_ms), EpochDateTime.from_ms(row.next_at)
        try:
            rule = recurrence.Rule(cron=row.cron, interval_ms=row.interval_ms, timezone=row.timezone)
            slots, later = recurrence.due(rule, row.catch_up, first=first, now=now)
        except (InvalidSchedule, StopIteration) as error:
            # The reason says it all; a traceback through cronsim would not help.
            logger.error("schedule name=%s can not be understood and is paused: %s", row.name, error)  # noqa: TRY400
            functions.schedule_pause(connection, row.name)
            return
        fired = functions.schedule_fire(
            connection,
            row.name,
            slots=[schedule.not_before(slot) for slot in slots],
            expected_at=row.next_at,
            next_at=schedule.not_before(later),
        )
        for message_id in fired:
            logger.info("scheduled id=%s task=%s schedule=%s", message_id, row.task, row.name)


def named(task: object) -> Iterator[tuple[str, Recurrence]]:
    """The schedules of a task, under their names: the task's path, numbered where there are several."""
    declared = getattr(task, "schedule", None) or ()
    several = declared if isinstance(declared, tuple) else (declared,)
    path = task.module_path  # type: ignore[attr-defined]
    for number, one in enumerate(several, start=1):
        yield one.name or (path if len(several) == 1 else f"{path}#{number}"), one
