"""Schedules: their rows, their slots and their messages."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from django_pgqueue.functions.connection import answered_ids
from django_pgqueue.functions.new_message import NewMessage

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from django_pgqueue.compat import AnyTask
    from django_pgqueue.functions.connection import Connection
    from django_pgqueue.functions.new_message import UniqueKey


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
    """Returns the schedules with these names (None: all that are not paused), and the time (epoch ms)."""
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
    """Makes or updates a schedule that is declared on a task.

    False: not yet, because another worker declares it differently, or because it is due by its old rule.
    """
    what = (task.queue_name, int(task.priority), max_attempts)
    when = (next_at, cron, interval_ms, timezone, catch_up)
    with connection.cursor() as cursor:
        cursor.execute(SCHEDULE_DECLARE, (name, task.module_path, *when, content, *what, worker))
        return bool(cursor.fetchone()[0])


def schedule_undeclare(connection: Connection, worker: str) -> None:
    """Deletes the declarations of a worker, which will fire no more schedules."""
    with connection.cursor() as cursor:
        cursor.execute("delete from pgqueue_schedule_declaration d where d.worker = %s", (worker,))


def schedule_fire(
    connection: Connection,
    name: str,
    *,
    slots: Sequence[int],
    expected_at: int,
    next_at: int,
    unique: UniqueKey | None = None,
    channel: str | None = None,
    max_lost: int | None = None,
    version: str | None = None,
    headers: Mapping[str, Any] | None = None,
) -> list[int]:
    """Enqueues a message for each unused slot, and returns the ids of the new messages."""
    key = (None, "keep", False) if unique is None else (unique.key, unique.on_conflict, unique.until_started)
    fired = answered_ids(
        connection,
        "select pgqueue_schedule_fire("
        "%s, %s::bigint[], %s::bigint, %s::bigint, %s, %s, %s, %s, %s, %s, cast(%s as jsonb))",
        (name, list(slots), expected_at, next_at, *key, channel, max_lost, version, json.dumps(headers or {})),
    )
    return sorted(fired)


def schedule_pause(connection: Connection, name: str) -> bool:
    """Pauses a schedule.  False: it was paused already or does not exist."""
    with connection.cursor() as cursor:
        cursor.execute(
            "update pgqueue_schedule set paused_at = pgqueue_clock() where name = %s and paused_at is null", (name,)
        )
        return bool(cursor.rowcount)


# A schedule that has never fired keeps a later begin, which somebody chose.  One that has fired is only later after a
# clock that was ahead.
RESUME = """
with resumed as (
    update pgqueue_schedule s set paused_at = null, next_at = case
        when exists (select from pgqueue_schedule_slot l where l.name = s.name) then %(next_at)s::bigint
        else greatest(s.next_at, %(next_at)s::bigint)
        end
    where s.name = %(name)s and s.paused_at is not null
    returning s.queue, s.next_at
)
select pgqueue_worker_wake_by(r.queue, true, r.next_at) from resumed r
"""
HAVE_FIRED = """
select s.name from pgqueue_schedule s where exists (select from pgqueue_schedule_slot l where l.name = s.name)
"""


def schedules_that_have_fired(connection: Connection) -> set[str]:
    """Returns their names."""
    with connection.cursor() as cursor:
        cursor.execute(HAVE_FIRED)
        return {name for (name,) in cursor.fetchall()}


def schedule_resume(connection: Connection, name: str, *, next_at: int) -> bool:
    """Resumes a schedule with the slot ``next_at``.  False: it was not paused."""
    with connection.cursor() as cursor:
        cursor.execute(RESUME, {"next_at": next_at, "name": name})
        return bool(cursor.rowcount)


MESSAGE = """
select s.content::text, s.queue, s.task, s.priority, s.max_attempts from pgqueue_schedule s where s.name = %s
"""


def schedule_message(connection: Connection, name: str) -> NewMessage | None:
    """Returns the message of a schedule, without the channel and the key of its task.  None: no such schedule."""
    with connection.cursor() as cursor:
        cursor.execute(MESSAGE, (name,))
        row = cursor.fetchone()
    if row is None:
        return None
    content, queue, task, priority, max_attempts = row
    return NewMessage(
        content=content,
        queue=queue,
        task=task,
        priority=priority,
        headers=json.dumps({"schedule": name}, ensure_ascii=False),  # SQL_ASCII refuses escapes
        max_attempts=max_attempts,
    )


def schedule_prune(connection: Connection) -> int:
    """Deletes the used slots of deleted schedules, and returns their number."""
    with connection.cursor() as cursor:
        cursor.execute("select pgqueue_schedule_prune()")
        return int(cursor.fetchone()[0])
