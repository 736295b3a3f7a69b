"""Schedules: when they are due, and what they enqueue."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from django_pgqueue.functions.connection import answered_ids

if TYPE_CHECKING:
    from collections.abc import Sequence

    from django_pgqueue.compat import AnyTask
    from django_pgqueue.functions.connection import Connection
    from django_pgqueue.recurrence import Recurrence


@dataclass(frozen=True, slots=True)
class KnownSchedule:
    name: str
    next_at: int
    task: str
    cron: str | None
    interval_ms: int | None
    timezone: str
    catch_up: str
    declared: bool


SCHEDULES = """
select s.name, s.next_at, s.task, s.cron, s.interval_ms, s.timezone, s.catch_up, s.declared, pgqueue_now()
from pgqueue_schedule s
where case when %s::text[] is null then s.paused_at is null else s.name = any (%s::text[]) end
order by s.next_at, s.name
"""


def schedules(connection: Connection, names: Sequence[str] | None = None) -> tuple[list[KnownSchedule], int]:
    """The schedules of these names, or those that are not paused, and what time it is (epoch ms)."""
    wanted = None if names is None else list(names)
    with connection.cursor() as cursor:
        cursor.execute(SCHEDULES, (wanted, wanted))
        rows = cursor.fetchall()
    return [KnownSchedule(*row[:-1]) for row in rows], rows[0][-1] if rows else 0


SCHEDULE_DECLARE = """
select pgqueue_schedule_declare(
    %s, %s, %s::bigint, %s, %s::bigint, %s, %s, %s::jsonb, %s, %s::integer, %s::integer)
"""


def schedule_declare(
    connection: Connection,
    name: str,
    *,
    task: AnyTask,
    declared: Recurrence,
    content: str,
    next_at: int,
    max_attempts: int | None,
) -> None:
    """Makes a schedule that is declared on a task, or brings it up to date."""
    rule = declared.rule
    what = (task.queue_name, int(task.priority), max_attempts)
    when = (next_at, rule.cron, rule.interval_ms, rule.timezone, declared.catch_up)
    with connection.cursor() as cursor:
        cursor.execute(SCHEDULE_DECLARE, (name, task.module_path, *when, content, *what))


def schedule_fire(
    connection: Connection, name: str, *, slots: Sequence[int], expected_at: int, next_at: int
) -> list[int]:
    """Enqueues a message for each slot that was not used, and answers their ids."""
    fired = answered_ids(
        connection,
        "select pgqueue_schedule_fire(%s, %s::bigint[], %s::bigint, %s::bigint)",
        (name, list(slots), expected_at, next_at),
    )
    return sorted(fired)


def schedule_pause(connection: Connection, name: str) -> bool:
    """False: it was paused already, or never was."""
    with connection.cursor() as cursor:
        cursor.execute(
            "update pgqueue_schedule set paused_at = pgqueue_clock() where name = %s and paused_at is null", (name,)
        )
        return bool(cursor.rowcount)


RESUME = """
update pgqueue_schedule set paused_at = null, next_at = greatest(next_at, %s::bigint)
where name = %s and paused_at is not null
"""


def schedule_resume(connection: Connection, name: str, *, next_at: int) -> bool:
    """Goes on with the first slot from ``next_at`` on.  False: it was not paused."""
    with connection.cursor() as cursor:
        cursor.execute(RESUME, (next_at, name))
        return bool(cursor.rowcount)


RUN_SCHEDULE = """
select pgqueue_message_create(
    s.content, s.queue, s.task, s.priority, p_headers => jsonb_build_object('schedule', s.name),
    p_max_attempts => s.max_attempts)
from pgqueue_schedule s where s.name = %s
"""


def schedule_run(connection: Connection, name: str) -> int | None:
    """Enqueues the message of a schedule now, beside its slots, and answers its id."""
    with connection.cursor() as cursor:
        cursor.execute(RUN_SCHEDULE, (name,))
        row = cursor.fetchone()
        return None if row is None else int(row[0])
