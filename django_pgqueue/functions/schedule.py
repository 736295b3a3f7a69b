"""Schedules: when they are due, and what they enqueue."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from django_pgqueue.functions.channel import refusal
from django_pgqueue.functions.connection import answered_ids

if TYPE_CHECKING:
    from collections.abc import Sequence

    from django_pgqueue.compat import AnyTask
    from django_pgqueue.functions.connection import Connection


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
    %s, %s, %s::bigint, %s, %s::bigint, %s, %s, %s::jsonb, %s, %s::integer, %s::integer, %s)
"""


def schedule_declare(
    connection: Connection,
    name: str,
    *,
    task: AnyTask,
    next_at: int,
    cron: str | None,
    interval_ms: int | None,
    timezone: str,
    catch_up: str,
    content: str,
    max_attempts: int | None,
    worker: str | None = None,
) -> bool:
    """Makes a schedule that is declared on a task, or brings it up to date.

    False: not yet. Another worker declares it otherwise, or it is due by the rule that it had.
    """
    what = (task.queue_name, int(task.priority), max_attempts)
    when = (next_at, cron, interval_ms, timezone, catch_up)
    with connection.cursor() as cursor:
        cursor.execute(SCHEDULE_DECLARE, (name, task.module_path, *when, content, *what, worker))
        return bool(cursor.fetchone()[0])


def schedule_undeclare(connection: Connection, worker: str) -> None:
    """Withdraws what a worker has declared: it will fire no more."""
    with connection.cursor() as cursor:
        cursor.execute("delete from pgqueue_schedule_declaration d where d.worker = %s", (worker,))


def schedule_fire(
    connection: Connection,
    name: str,
    *,
    slots: Sequence[int],
    expected_at: int,
    next_at: int,
    unique_key: str | None = None,
    on_conflict: str = "keep",
    until_started: bool = False,
    channel: str | None = None,
) -> list[int]:
    """Enqueues a message for each slot that was not used, and answers the ids of those that are new."""
    fired = answered_ids(
        connection,
        "select pgqueue_schedule_fire(%s, %s::bigint[], %s::bigint, %s::bigint, %s, %s, %s, %s)",
        (name, list(slots), expected_at, next_at, unique_key, on_conflict, until_started, channel),
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


RUN = """
select pgqueue_message_create(
    s.content, s.queue, s.task, s.priority, p_channel => %s, p_headers => jsonb_build_object('schedule', s.name),
    p_max_attempts => s.max_attempts), true
from pgqueue_schedule s where s.name = %s
"""
RUN_UNIQUE = """
select u.p_id, u.p_created
from pgqueue_schedule s
cross join lateral pgqueue_message_create_unique(
    %s, s.content, s.queue, s.task, s.priority, p_channel => %s, p_headers => jsonb_build_object('schedule', s.name),
    p_max_attempts => s.max_attempts, p_on_conflict => %s, p_until_started => %s) as u
where s.name = %s
"""


def schedule_run(
    connection: Connection,
    name: str,
    *,
    unique_key: str | None = None,
    on_conflict: str = "keep",
    until_started: bool = False,
    channel: str | None = None,
) -> tuple[int, bool] | None:
    """Enqueues the message of a schedule now, beside its slots: the id, perhaps that of who holds the key."""
    with connection.cursor() as cursor:
        if unique_key is None:
            cursor.execute(RUN, (channel, name))
        else:
            cursor.execute(RUN_UNIQUE, (unique_key, channel, on_conflict, until_started, name))
        found: tuple[int | None, bool] | None = cursor.fetchone()
    if found is None:
        return None
    message_id, created = found
    if message_id is None:
        raise refusal(connection, channel, f"The message of schedule {name!r}")
    return message_id, created


def schedule_content(connection: Connection, name: str) -> str | None:
    """The content of its messages, as JSON."""
    with connection.cursor() as cursor:
        cursor.execute("select s.content::text from pgqueue_schedule s where s.name = %s", (name,))
        row = cursor.fetchone()
        return None if row is None else str(row[0])


def schedule_prune(connection: Connection) -> int:
    """Forgets the used slots of schedules that were deleted, and answers how many."""
    with connection.cursor() as cursor:
        cursor.execute("select pgqueue_schedule_prune()")
        return int(cursor.fetchone()[0])
