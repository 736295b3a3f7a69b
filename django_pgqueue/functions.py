"""The binding: the only Python that calls the SQL functions.

Every call takes the connection to work on, either one of Django's (then it is part of the caller's transaction) or one
of psycopg's.  Rows come back as dataclasses; JSON comes and goes as text (``content.py`` knows how it must look).
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from traceback import format_exception
from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    import datetime as dt
    from collections.abc import Iterable, Sequence

    from django_pgqueue.compat import AnyTask
    from django_pgqueue.recurrence import Recurrence


class Cursor(Protocol):
    def execute(self, sql: Any, params: Any = None, /) -> Any: ...
    def fetchone(self) -> Any: ...
    def fetchall(self) -> list[Any]: ...
    def __enter__(self) -> Any: ...
    def __exit__(self, *args: object) -> Any: ...


class Connection(Protocol):
    def cursor(self) -> Any: ...


@dataclass(slots=True)
class Received:
    """A message as its consumer holds it: ``(id, attempt, worker)`` is the token that ends the attempt."""

    id: int
    attempt: int
    max_attempts: int | None
    priority: int
    queue: str
    channel: str | None
    task: str | None
    worker: str
    dequeue_at: int
    created_at: dt.datetime
    locked_at: dt.datetime
    content: str
    headers: str | None
    state: str | None


@dataclass(frozen=True, slots=True)
class Created:
    id: int
    created_at: dt.datetime


@dataclass(frozen=True, slots=True, kw_only=True)
class Error:
    """Why an attempt ended: the dotted path of the exception's class, its message, its traceback."""

    message: str
    error_class: str | None = None
    traceback: str | None = None

    @classmethod
    def of(cls, error: BaseException | str) -> Error:
        if isinstance(error, str):
            return cls(message=error)
        path = f"{type(error).__module__}.{type(error).__qualname__}"
        return cls(message=_text_of(error), error_class=path, traceback="".join(format_exception(error)))

    def as_json(self) -> str:
        words = {"class": self.error_class, "message": self.message, "traceback": self.traceback}
        return json.dumps({name: storable(text) for name, text in words.items()})


@dataclass(frozen=True, slots=True)
class Floor:
    """Where the last dequeue of one priority of a queue stopped: the next one may begin there."""

    queue: str
    priority: int
    dequeue_at: int
    id: int


def storable(text: str | None) -> str | None:
    """``text`` without what PostgreSQL can not store (NUL, lone surrogates): for the words of foreign errors."""
    if text is None:
        return None
    return text.replace("\x00", "\N{REPLACEMENT CHARACTER}").encode("utf-8", "replace").decode()


def _text_of(error: BaseException) -> str:
    try:
        return str(error) or type(error).__qualname__
    except Exception as unprintable:  # noqa: BLE001 -- the error of an error must not hide the first one
        return f"{type(error).__qualname__} (its text can not be made: {type(unprintable).__qualname__})"


# cast(), because Django writes numbers into the statement: -9223372036854775808::bigint is minus a number too large.
CREATE = """
select pgqueue_message_create(
    %s::jsonb, %s, %s, %s, coalesce(cast(%s as bigint), pgqueue_now(now()) + %s::bigint), %s, %s::jsonb, %s),
    pgqueue_clock(now())
"""


def message_create(
    connection: Connection,
    content: str,
    *,
    queue: str = "default",
    task: str | None = None,
    priority: int = 0,
    dequeue_at: int | None = None,
    delay_ms: int | None = None,
    channel: str | None = None,
    headers: str | None = None,
    max_attempts: int | None = 5,
) -> Created:
    """Enqueues one message.  ``delay_ms`` counts from the database's clock, which is the only clock there is."""
    with connection.cursor() as cursor:
        cursor.execute(CREATE, (content, queue, task, priority, dequeue_at, delay_ms, channel, headers, max_attempts))
        return Created(*cursor.fetchone())


def message_create_many(connection: Connection, messages: str) -> list[int]:
    """Enqueues many messages: ``messages`` is the JSON array that sql/pgqueue_message_create_many.sql describes."""
    with connection.cursor() as cursor:
        cursor.execute("select pgqueue_message_create_many(%s::jsonb)", (messages,))
        return [row[0] for row in cursor.fetchall()]


CREATE_ALIKE = "select pgqueue_message_create_many(%s::jsonb, %s, %s, %s, %s::bigint, %s, %s::jsonb, %s)"


def message_create_alike(
    connection: Connection,
    contents: str,
    *,
    queue: str,
    task: str | None = None,
    priority: int = 0,
    dequeue_at: int | None = None,
    channel: str | None = None,
    headers: str | None = None,
    max_attempts: int | None = 5,
) -> list[int]:
    """Enqueues a message for each content of a JSON array: many that differ in nothing else."""
    with connection.cursor() as cursor:
        cursor.execute(CREATE_ALIKE, (contents, queue, task, priority, dequeue_at, channel, headers, max_attempts))
        return [row[0] for row in cursor.fetchall()]


CREATE_AFTER = """
select pgqueue_message_create_after(
    %s::bigint[], %s::jsonb, %s, %s, %s, coalesce(%s::bigint, pgqueue_now(now()) + %s::bigint), %s, %s::jsonb, %s, %s),
    pgqueue_clock(now())
"""


def message_create_after(
    connection: Connection,
    after_ids: Sequence[int],
    content: str,
    *,
    queue: str = "default",
    task: str | None = None,
    priority: int = 0,
    dequeue_at: int | None = None,
    delay_ms: int | None = None,
    channel: str | None = None,
    headers: str | None = None,
    max_attempts: int | None = 5,
    policy: str = "finished",
) -> Created:
    """Enqueues one message that waits until others have ended."""
    what = (queue, task, priority, dequeue_at, delay_ms, channel, headers, max_attempts, policy)
    with connection.cursor() as cursor:
        cursor.execute(CREATE_AFTER, (list(after_ids), content, *what))
        return Created(*cursor.fetchone())


def message_settle(connection: Connection, *, force: bool = False) -> int:
    """Looks at messages that wait for others and answers how many need not wait any more."""
    with connection.cursor() as cursor:
        cursor.execute("select pgqueue_message_settle(p_force => %s)", (force,))
        return int(cursor.fetchone()[0])


CREATE_UNIQUE = """
select u.p_id, pgqueue_clock(now()), u.p_created from pgqueue_message_create_unique(
    %s, %s::jsonb, %s, %s, %s, coalesce(cast(%s as bigint), pgqueue_now(now()) + %s::bigint), %s, %s::jsonb,
    %s, %s, %s) as u
"""


def message_create_unique(
    connection: Connection,
    unique_key: str,
    content: str,
    *,
    queue: str = "default",
    task: str | None = None,
    priority: int = 0,
    dequeue_at: int | None = None,
    delay_ms: int | None = None,
    channel: str | None = None,
    headers: str | None = None,
    max_attempts: int | None = 5,
    on_conflict: str = "keep",
    until_started: bool = False,
) -> tuple[Created, bool]:
    """Enqueues one message unless another holds its key: the message that now does, and whether it is new."""
    what = (queue, task, priority, dequeue_at, delay_ms, channel, headers, max_attempts)
    with connection.cursor() as cursor:
        cursor.execute(CREATE_UNIQUE, (unique_key, content, *what, on_conflict, until_started))
        message_id, created_at, created = cursor.fetchone()
        return Created(message_id, created_at), created


DEQUEUE = """
select id, attempt, max_attempts, priority, queue, channel, task, worker, dequeue_at, created_at, locked_at,
       content::text, headers::text, state::text
from pgqueue_message_dequeue(
    %s::text[], %s, %s, %s, %s::text[], %s, %s::text[], %s::integer[], %s::bigint[], %s::bigint[])
"""
# A claim that a crash of the server undoes has simply not happened: it need not wait for the disk.  The setting ends
# with the transaction, so the statement must be a transaction of its own.
DEQUEUE_UNFLUSHED = (
    "with setting as materialized (select set_config('synchronous_commit', 'off', true))"
    + DEQUEUE.replace("from pgqueue_message_dequeue", "from setting cross join lateral pgqueue_message_dequeue")
)


def message_dequeue(
    connection: Connection,
    *,
    queues: Sequence[str] | None = None,
    exclude_queues: Sequence[str] = (),
    limit: int = 1,
    lock_ms: int = 60_000,
    worker: str | None = None,
    tasks: bool = False,
    floors: Sequence[Floor] | None = None,
    flush: bool = True,
) -> list[Received]:
    """Takes and locks ready messages.  ``flush=False``: the claim's own transaction does not wait for the disk."""
    with connection.cursor() as cursor:
        cursor.execute(
            DEQUEUE if flush else DEQUEUE_UNFLUSHED,
            (
                None if queues is None else list(queues),
                limit,
                lock_ms,
                worker,
                list(exclude_queues),
                tasks,
                None if floors is None else [floor.queue for floor in floors],
                None if floors is None else [floor.priority for floor in floors],
                None if floors is None else [floor.dequeue_at for floor in floors],
                None if floors is None else [floor.id for floor in floors],
            ),
        )
        return [Received(*row) for row in cursor.fetchall()]


@dataclass(slots=True)
class Success:
    """An attempt that succeeded, to be completed: ``result`` is JSON text or None."""

    id: int
    attempt: int
    result: str | None = None
    started_at: dt.datetime | None = None
    finished_at: dt.datetime | None = None


COMPLETE = """
select pgqueue_message_complete(%s::bigint[], %s::integer[], %s, %s::jsonb[], %s::timestamptz[], %s::timestamptz[])
"""


def message_complete(connection: Connection, successes: Iterable[Success], *, worker: str) -> set[int]:
    """Completes attempts and answers the ids of those that were ours; the others were lost."""
    # Of two attempts at one message only the later one can be ours, and the SQL takes the first that it meets.
    ends = sorted(successes, key=lambda success: (success.id, -success.attempt))
    results = [end.result for end in ends]
    with connection.cursor() as cursor:
        cursor.execute(
            COMPLETE,
            (
                _array(end.id for end in ends),
                _array(end.attempt for end in ends),
                worker,
                results if any(result is not None for result in results) else None,
                _array(_timestamp(end.started_at) for end in ends),
                _array(_timestamp(end.finished_at) for end in ends),
            ),
        )
        return {row[0] for row in cursor.fetchall()}


def _array(items: Iterable[object]) -> str:
    """An array's text, of items without commas or quotes: psycopg's general way costs ten times as much."""
    return f"{{{','.join(map(str, items))}}}"


def _timestamp(moment: dt.datetime | None) -> str:
    return "null" if moment is None else moment.isoformat()


DEFER = """
select pgqueue_message_defer(
    %s::bigint, %s::integer, %s, coalesce(cast(%s as bigint), pgqueue_now() + %s::bigint), %s::jsonb, %s::jsonb,
    %s::timestamptz, %s::timestamptz, %s)
"""


def message_defer(
    connection: Connection,
    message: Received,
    *,
    delay_ms: int = 0,
    dequeue_at: int | None = None,
    state: str | None = None,
    error: Error | None = None,
    started_at: dt.datetime | None = None,
    finished_at: dt.datetime | None = None,
    max_attempts: int = 1,
) -> str | None:
    """Puts a message back.  Answers "deferred", "retried", "failed" or "cancelled"; None: the attempt was lost.

    ``max_attempts`` is for messages that have none of their own.
    """
    with connection.cursor() as cursor:
        cursor.execute(
            DEFER,
            (
                message.id,
                message.attempt,
                message.worker,
                dequeue_at,
                delay_ms,
                state,
                None if error is None else error.as_json(),
                started_at,
                finished_at,
                max_attempts,
            ),
        )
        status: str | None = cursor.fetchone()[0]
        return status


FAIL = "select pgqueue_message_fail(%s::bigint, %s::integer, %s, %s::jsonb, %s::timestamptz, %s::timestamptz)"


def message_fail(
    connection: Connection,
    message: Received,
    *,
    error: Error,
    started_at: dt.datetime | None = None,
    finished_at: dt.datetime | None = None,
) -> bool:
    """Gives a message up.  False: the attempt was lost."""
    with connection.cursor() as cursor:
        cursor.execute(FAIL, (message.id, message.attempt, message.worker, error.as_json(), started_at, finished_at))
        return bool(cursor.fetchone()[0])


CANCEL = "select pgqueue_message_cancel(%s::bigint, %s::integer, %s, %s::jsonb, %s::timestamptz, %s::timestamptz)"


def message_cancelled(
    connection: Connection,
    message: Received,
    *,
    error: Error,
    started_at: dt.datetime | None = None,
    finished_at: dt.datetime | None = None,
) -> bool:
    """Ends an attempt that was asked to stop.  False: the attempt was lost."""
    with connection.cursor() as cursor:
        cursor.execute(CANCEL, (message.id, message.attempt, message.worker, error.as_json(), started_at, finished_at))
        return bool(cursor.fetchone()[0])


def message_progress(connection: Connection, message: Received, progress: str) -> bool:
    """Says how far a message is.  False: the attempt was lost."""
    with connection.cursor() as cursor:
        cursor.execute(
            "select pgqueue_message_progress(%s::bigint, %s::integer, %s, %s::jsonb)",
            (message.id, message.attempt, message.worker, progress),
        )
        return bool(cursor.fetchone()[0])


def message_request_cancel(connection: Connection, ids: Iterable[int]) -> set[int]:
    """Asks the consumers of messages that run to stop, and answers which."""
    return _ids(connection, "select pgqueue_message_request_cancel(%s::bigint[])", (sorted(ids),))


def message_cancellations(connection: Connection, ids: Iterable[int], *, worker: str) -> set[int]:
    """Which of the messages that a worker holds it was asked to stop."""
    return _ids(connection, "select pgqueue_message_cancellations(%s::bigint[], %s)", (sorted(ids), worker))


def queue_pause(connection: Connection, queue: str, by: str | None) -> None:
    with connection.cursor() as cursor:
        cursor.execute("select pgqueue_queue_pause(%s, %s)", (queue, by))


def queue_resume(connection: Connection, queue: str) -> bool:
    with connection.cursor() as cursor:
        cursor.execute("select pgqueue_queue_resume(%s)", (queue,))
        return bool(cursor.fetchone()[0])


def message_release(connection: Connection, messages: Iterable[Received], *, worker: str) -> set[int]:
    """Gives back messages that were not started, without counting the attempt."""
    held = sorted((message.id, message.attempt) for message in messages)
    return _ids(
        connection,
        "select pgqueue_message_release(%s::bigint[], %s::integer[], %s)",
        ([id_ for id_, _ in held], [attempt for _, attempt in held], worker),
    )


def message_heartbeat(connection: Connection, messages: Iterable[Received], *, worker: str, lock_ms: int) -> set[int]:
    """Lengthens locks and answers the ids of those that were ours; the others were lost."""
    held = sorted((message.id, message.attempt) for message in messages)
    return _ids(
        connection,
        "select pgqueue_message_heartbeat(%s::bigint[], %s::integer[], %s, %s)",
        ([id_ for id_, _ in held], [attempt for _, attempt in held], worker, lock_ms),
    )


def message_cancel(connection: Connection, ids: Iterable[int]) -> set[int]:
    """Withdraws messages that wait and answers their ids."""
    return _ids(connection, "select pgqueue_message_cancel(%s::bigint[])", (sorted(ids),))


def message_reschedule(connection: Connection, ids: Iterable[int], *, delay_ms: int = 0) -> set[int]:
    """Makes messages that wait ready ``delay_ms`` from now and answers their ids."""
    return _ids(
        connection,
        "select pgqueue_message_reschedule(%s::bigint[], pgqueue_now() + %s::bigint)",
        (sorted(ids), delay_ms),
    )


def message_next_at(
    connection: Connection, *, queues: Sequence[str] | None, exclude_queues: Sequence[str] = (), tasks: bool = False
) -> tuple[int | None, int]:
    """The earliest ``dequeue_at`` that waits in the queues, and what time it is: both in epoch ms."""
    with connection.cursor() as cursor:
        cursor.execute(
            "select pgqueue_message_next_at(%s::text[], %s::text[], %s), pgqueue_now()",
            (None if queues is None else list(queues), list(exclude_queues), tasks),
        )
        next_at, now = cursor.fetchone()
        return next_at, now


def message_queues(connection: Connection) -> list[str]:
    """The queues that have waiting messages, by name."""
    with connection.cursor() as cursor:
        cursor.execute("select pgqueue_message_queues()")
        return [row[0] for row in cursor.fetchall()]


def attempt_enqueue(connection: Connection, attempt_ids: Iterable[int]) -> list[int]:
    """Enqueues finished messages again and answers the ids of the new ones."""
    return sorted(_ids(connection, "select pgqueue_attempt_enqueue(%s::bigint[])", (sorted(attempt_ids),)))


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
    fired = _ids(
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


def attempt_maintain(connection: Connection, *, days_ahead: int = 7, days_kept: int | None = None) -> int:
    """Makes and drops partitions of the history and answers how many."""
    with connection.cursor() as cursor:
        cursor.execute("select pgqueue_attempt_maintain(%s, %s)", (days_ahead, days_kept))
        return int(cursor.fetchone()[0])


def now(connection: Connection) -> dt.datetime:
    """What time it is for the queue."""
    with connection.cursor() as cursor:
        cursor.execute("select pgqueue_clock()")
        moment: dt.datetime = cursor.fetchone()[0]
        return moment


def worker_seen(
    connection: Connection,
    *,
    worker: str,
    queues: Sequence[str] | None,
    exclude_queues: Sequence[str],
    hostname: str,
    pid: int,
    slots: int,
    asleep_ms: int | None,
) -> None:
    """Says that a worker is alive and, with ``asleep_ms``, that it waits to be woken.  Not worth waiting for a disk."""
    with connection.cursor() as cursor:
        cursor.execute(
            "with setting as materialized (select set_config('synchronous_commit', 'off', true)) "
            "select pgqueue_worker_seen(%s, %s::text[], %s::text[], %s, %s, %s, %s::bigint) from setting",
            (
                worker,
                None if queues is None else list(queues),
                list(exclude_queues),
                hostname,
                pid,
                slots,
                asleep_ms,
            ),
        )


def worker_wake(connection: Connection, queue: str) -> None:
    """Wakes one sleeping worker of ``queue``, if there is one."""
    with connection.cursor() as cursor:
        cursor.execute("select pgqueue_worker_wake(%s)", (queue,))


def worker_gone(connection: Connection, worker: str) -> None:
    """Signs a worker off."""
    with connection.cursor() as cursor:
        cursor.execute("select pgqueue_worker_gone(%s)", (worker,))


def _ids(connection: Connection, sql: str, params: tuple[Any, ...]) -> set[int]:
    with connection.cursor() as cursor:
        cursor.execute(sql, params)
        return {row[0] for row in cursor.fetchall()}
