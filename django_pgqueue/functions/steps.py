"""Functions for durable tasks: steps, waits, events, children, approvals, budgets."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

from django_pgqueue.functions.attempt import LAKE_DAYS

if TYPE_CHECKING:
    import datetime as dt
    from collections.abc import Sequence
    from decimal import Decimal

    from django_pgqueue.functions.connection import Connection
    from django_pgqueue.functions.dequeue import Received


class StepRecord(NamedTuple):
    """Record of a step, or of its wait.  ``result`` is JSON text; ``is_large``: it has to be asked for."""

    name: str
    kind: str
    status: str
    attempt: int
    until: int | None
    is_large: bool
    result: str | None


RECORD = """
select pgqueue_step_record(
    %s::bigint, %s::integer, %s, cast(%s as jsonb), %s, %s, %s, cast(%s as text), cast(%s as timestamptz))
"""


def step_record(
    connection: Connection,
    message: Received,
    name: str,
    *,
    result: str | None = None,
    kind: str = "step",
    status: str = "done",
    error: str | None = None,
    started_at: dt.datetime | None = None,
) -> bool:
    """Records a step in the transaction of the caller.  False: the attempt was lost."""
    with connection.cursor() as cursor:
        cursor.execute(
            RECORD, (message.id, message.attempt, name, result, message.worker, kind, status, error, started_at)
        )
        return bool(cursor.fetchone()[0])


class NewStep(NamedTuple):
    """A step that is done, or has begun, and is to be recorded."""

    message_id: int
    attempt: int
    worker: str
    name: str
    result: str | None
    kind: str
    status: str
    started_at: dt.datetime | None


RECORD_MANY = """
select pgqueue_step_record_many(
    %s::bigint[], %s::integer[], %s::text[], %s::text[], %s::text[]::jsonb[], %s::text[], %s::text[],
    %s::timestamptz[])
"""


def step_record_many(connection: Connection, steps: Sequence[NewStep]) -> set[int]:
    """Records steps of several messages.  Returns the places of those that were recorded.

    The others lost their attempt, or somebody has locked their message: record them alone.
    """
    with connection.cursor() as cursor:
        cursor.execute(RECORD_MANY, [list(column) for column in zip(*steps, strict=True)])
        return {place - 1 for (place,) in cursor.fetchall()}


LOAD = """
select s.p_name, s.p_kind, s.p_status, s.p_attempt, s.p_until, s.p_is_large, s.p_result::text
from pgqueue_step_load(%s::bigint, %s::timestamptz) as s
"""


def step_load(connection: Connection, message: Received) -> list[StepRecord]:
    """Returns the records of the steps of a message, the latest last."""
    with connection.cursor() as cursor:
        cursor.execute(LOAD, (message.id, message.created_at))
        return [StepRecord(*row) for row in cursor.fetchall()]


def step_result(connection: Connection, message: Received, name: str) -> str | None:
    """Returns the recorded result of one step as JSON text."""
    with connection.cursor() as cursor:
        cursor.execute(
            "select pgqueue_step_result(%s::bigint, %s::timestamptz, %s)::text", (message.id, message.created_at, name)
        )
        found: str | None = cursor.fetchone()[0]
        return found


def step_enqueue(connection: Connection, message_id: int, step: str, *, version: str | None = None) -> int:
    """Enqueues an ended message again, from one of its steps on.  Returns the id of the new message."""
    with connection.cursor() as cursor:
        cursor.execute("select pgqueue_step_enqueue(%s::bigint, %s, %s)", (message_id, step, version))
        return int(cursor.fetchone()[0])


def step_maintain(connection: Connection, *, history_days: int | None = None, lake_days: int = LAKE_DAYS) -> int:
    """Makes and drops partitions of the steps, and deletes what belongs to ended messages.  Returns how many."""
    with connection.cursor() as cursor:
        cursor.execute("select pgqueue_step_maintain(p_days_kept => %s, p_lake_days => %s)", (history_days, lake_days))
        return int(cursor.fetchone()[0])


@dataclass(frozen=True, slots=True, kw_only=True)
class Wait:
    """Reason for which a message is suspended: a time, an event, a decision, or other messages."""

    name: str | None = None
    """The step that waits.  None: it waits for other messages."""
    kind: str = "sleep"
    delay_ms: int | None = None
    until: int | None = None
    """Epoch ms, and instead of ``delay_ms``.  Neither: it waits for ever."""
    event: str | None = None
    after_ids: tuple[int, ...] = ()
    permission: str | None = None
    details: str | None = None
    """JSON text that the person who decides is shown."""


WAKES_AT = """
select m.id, m.task, m.dequeue_at from pgqueue_message m
where m.suspended_attempt = m.attempt and m.unlock_at is null and m.after_ids is null
  and m.dequeue_at between pgqueue_now() + 1 and 9223372036854775806
  and m.queue = any (coalesce(cast(%(queues)s as text[]), array[m.queue]))
  and not exists (select from pgqueue_queue q where q.name = m.queue and q.paused_at is not null)
order by m.dequeue_at, m.id
limit 1
"""


class Wakes(NamedTuple):
    id: int
    task: str | None
    at: int
    """Epoch ms."""


def step_wakes_at(connection: Connection, queues: Sequence[str] | None = None) -> Wakes | None:
    """Returns the suspended message of ``queues`` (None: of all) whose sleep or time-out ends next.

    None: none waits for a time.
    """
    with connection.cursor() as cursor:
        cursor.execute(WAKES_AT, {"queues": None if queues is None else list(queues)})
        row = cursor.fetchone()
        return None if row is None else Wakes(*row)


SUSPEND = """
select pgqueue_message_suspend(
    %s::bigint, %s::integer, %s, cast(%s as text), %s, coalesce(cast(%s as bigint), pgqueue_now() + cast(%s as bigint)),
    cast(%s as text), cast(%s as bigint[]), cast(%s as text), cast(%s as jsonb), %s::timestamptz, %s::timestamptz)
"""


def message_suspend(
    connection: Connection,
    message: Received,
    wait: Wait,
    *,
    started_at: dt.datetime | None = None,
    finished_at: dt.datetime | None = None,
) -> str | None:
    """Ends an attempt as suspended.  Returns "suspended" or "cancelled"; None: the attempt was lost."""
    with connection.cursor() as cursor:
        cursor.execute(
            SUSPEND,
            (
                message.id,
                message.attempt,
                message.worker,
                wait.name,
                wait.kind,
                wait.until,
                wait.delay_ms,
                wait.event,
                list(wait.after_ids) or None,
                wait.permission,
                wait.details,
                started_at,
                finished_at,
            ),
        )
        status: str | None = cursor.fetchone()[0]
        return status


def event_emit(connection: Connection, name: str, payload: str) -> str:
    """Emits an event.  Returns "emitted", "repeated" or "different"."""
    with connection.cursor() as cursor:
        cursor.execute("select pgqueue_event_emit(%s, cast(%s as jsonb))", (name, payload))
        return str(cursor.fetchone()[0])


def event_payload(connection: Connection, name: str) -> str | None:
    """Returns the payload of an emitted event as JSON text.  None: it has not been emitted."""
    with connection.cursor() as cursor:
        cursor.execute("select e.payload::text from pgqueue_event e where e.name = %s", (name,))
        row = cursor.fetchone()
        return None if row is None else str(row[0])


def child_add(connection: Connection, message: Received, child_id: int, *, cancels: bool) -> bool:
    """Records that ``message`` has enqueued a child.  False: the attempt was lost."""
    with connection.cursor() as cursor:
        cursor.execute(
            "select pgqueue_child_add(%s::bigint, %s::integer, %s::bigint, %s, %s)",
            (message.id, message.attempt, child_id, message.worker, cancels),
        )
        return bool(cursor.fetchone()[0])


class ChildOutcome(NamedTuple):
    """End of a child: ``status`` is "waiting" before it, and "unknown" if there is no such child."""

    id: int
    status: str
    error_class: str | None
    error_message: str | None
    result: str | None


OUTCOMES = """
select c.p_id, c.p_status, c.p_error_class, c.p_error_message, c.p_result::text
from pgqueue_child_outcomes(%s::bigint, %s::bigint[]) as c
"""


def child_outcomes(connection: Connection, message: Received, ids: Sequence[int]) -> list[ChildOutcome]:
    """Returns how children have ended, in the order of ``ids``."""
    with connection.cursor() as cursor:
        cursor.execute(OUTCOMES, (message.id, list(ids)))
        return [ChildOutcome(*row) for row in cursor.fetchall()]


RESULTS = """
select c.p_id, c.p_status, c.p_error_class, c.p_error_message, c.p_result::text
from pgqueue_child_outcomes(%(id)s::bigint, array(
    select a.message_id from pgqueue_child a where a.parent_id = %(id)s::bigint and a.by_after order by a.message_id
)) as c
"""


def after_outcomes(connection: Connection, message_id: int) -> list[ChildOutcome]:
    """Returns how the messages have ended whose results this one wants, in the order of their ids."""
    with connection.cursor() as cursor:
        cursor.execute(RESULTS, {"id": message_id})
        return [ChildOutcome(*row) for row in cursor.fetchall()]


def approval_permission(connection: Connection, message_id: int, name: str) -> str | None:
    """Returns the permission that an approval asks for.  None: it asks for none, or does not exist."""
    with connection.cursor() as cursor:
        cursor.execute(
            "select a.permission from pgqueue_approval a where a.message_id = %s::bigint and a.name = %s",
            (message_id, name),
        )
        row = cursor.fetchone()
        return None if row is None else row[0]


def approval_decide(
    connection: Connection, message_id: int, name: str, *, approved: bool, by: str, comment: str | None = None
) -> str:
    """Decides an approval.  Returns "decided", "already", "ended" or "unknown"."""
    with connection.cursor() as cursor:
        cursor.execute(
            "select pgqueue_approval_decide(%s::bigint, %s, %s, %s, cast(%s as text))",
            (message_id, name, approved, by, comment),
        )
        return str(cursor.fetchone()[0])


class Spent(NamedTuple):
    is_held: bool
    is_spent: bool
    spent: Decimal


def budget_spend(connection: Connection, message: Received, name: str, *, amount: Decimal, limit: Decimal) -> Spent:
    """Spends a part of a budget."""
    with connection.cursor() as cursor:
        cursor.execute(
            "select * from pgqueue_budget_spend(%s::bigint, %s::integer, %s, %s::numeric, %s::numeric, %s)",
            (message.id, message.attempt, name, amount, limit, message.worker),
        )
        return Spent(*cursor.fetchone())
