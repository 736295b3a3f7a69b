"""Functions for the messages that a consumer holds: they keep messages and end their attempts."""

from __future__ import annotations

from dataclasses import dataclass
from operator import attrgetter
from typing import TYPE_CHECKING, Any

from django_pgqueue.functions.connection import answered_ids, array_of

if TYPE_CHECKING:
    import datetime as dt
    from collections.abc import Iterable

    from django_pgqueue.functions.connection import Connection
    from django_pgqueue.functions.dequeue import Received, Token
    from django_pgqueue.values.error import Error


@dataclass(slots=True)
class Success:
    """Attempt that succeeded and is to be completed: ``result`` is JSON text or None.

    Times are microseconds since 1970: a datetime costs each attempt more than all else that is done with it.
    """

    id: int
    attempt: int
    result: str | None = None
    started_us: int | None = None
    finished_us: int | None = None


# PostgreSQL makes a float of the microseconds: exact for another 200 years.
COMPLETE = """
select pgqueue_message_complete(
    %s::bigint[], %s::integer[], %s, %s::jsonb[],
    array(select to_timestamp(t / 1e6::float8) from unnest(%s::bigint[]) as t),
    array(select to_timestamp(t / 1e6::float8) from unnest(%s::bigint[]) as t))
"""


def message_complete(connection: Connection, successes: Iterable[Success], *, worker: str) -> set[int]:
    """Completes attempts and returns the ids of those that ``worker`` still held; the others were lost."""
    return message_complete_prepared(connection, completion(successes, worker=worker))


def message_complete_prepared(connection: Connection, parameters: tuple[Any, ...]) -> set[int]:
    """Does what ``message_complete`` does, with the parameters that ``completion`` returned."""
    return answered_ids(connection, COMPLETE, parameters)


def completion(successes: Iterable[Success], *, worker: str) -> tuple[Any, ...]:
    """Prepares ``message_complete``, without the database."""
    # If there are two attempts at one message, only the later one can be held, and the SQL takes the first in the list.
    ends = sorted(successes, key=attrgetter("attempt"), reverse=True)
    ends.sort(key=attrgetter("id"))
    results = [end.result for end in ends]
    return (
        array_of([end.id for end in ends]),
        array_of([end.attempt for end in ends]),
        worker,
        None if results.count(None) == len(results) else results,
        array_of(["null" if end.started_us is None else end.started_us for end in ends]),
        array_of(["null" if end.finished_us is None else end.finished_us for end in ends]),
    )


LOCKED = """
with free as materialized (select m.id from pgqueue_message m where m.id = any (%s::bigint[]) for update skip locked)
select m.id from pgqueue_message m where m.id = any (%s::bigint[]) and m.id not in (select f.id from free f)
"""


def message_locked(connection: Connection, ids: Iterable[int]) -> set[int]:
    """Returns the ids of the rows that another session has locked.

    It locks the other existing rows until the end of the caller's transaction.
    """
    wanted = array_of(ids)
    return answered_ids(connection, LOCKED, (wanted, wanted))


DEFER = """
select pgqueue_message_defer(
    %s::bigint, %s::integer, %s, coalesce(cast(%s as bigint), pgqueue_now() + %s::bigint), %s::jsonb, %s::text,
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
    """Puts a message back.  Returns "deferred", "retried", "failed" or "cancelled"; None: the attempt was lost.

    ``max_attempts`` applies to messages that have no number of their own.
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


FAIL = "select pgqueue_message_fail(%s::bigint, %s::integer, %s, %s::text, %s::timestamptz, %s::timestamptz)"


def message_fail(
    connection: Connection,
    message: Received | Token,
    *,
    error: Error,
    started_at: dt.datetime | None = None,
    finished_at: dt.datetime | None = None,
) -> bool:
    """Fails a message.  False: the attempt was lost."""
    return _end(connection, FAIL, message, error, started_at, finished_at)


CANCEL = "select pgqueue_message_cancel(%s::bigint, %s::integer, %s, %s::text, %s::timestamptz, %s::timestamptz)"


def message_cancelled(
    connection: Connection,
    message: Received,
    *,
    error: Error,
    started_at: dt.datetime | None = None,
    finished_at: dt.datetime | None = None,
) -> bool:
    """Ends an attempt that was asked to stop.  False: the attempt was lost."""
    return _end(connection, CANCEL, message, error, started_at, finished_at)


def _end(
    connection: Connection, statement: str, message: Received | Token, error: Error, *times: dt.datetime | None
) -> bool:
    with connection.cursor() as cursor:
        cursor.execute(statement, (message.id, message.attempt, message.worker, error.as_json(), *times))
        return bool(cursor.fetchone()[0])


RELEASE = "select pgqueue_message_release(%s::bigint[], %s::integer[], %s)"


def message_release(connection: Connection, messages: Iterable[Received], *, worker: str) -> set[int]:
    """Releases messages whose attempt was not begun, and does not count the attempt."""
    held = sorted((message.id, message.attempt) for message in messages)
    return answered_ids(connection, RELEASE, ([id_ for id_, _ in held], [attempt for _, attempt in held], worker))


def message_abandon(connection: Connection, messages: Iterable[Received], *, worker: str) -> set[int]:
    """Gives up attempts that have begun, because the worker stops, and returns the ids of these messages."""
    held = sorted((message.id, message.attempt) for message in messages)
    return answered_ids(
        connection,
        "select pgqueue_message_abandon(%s::bigint[], %s::integer[], %s)",
        ([id_ for id_, _ in held], [attempt for _, attempt in held], worker),
    )


OTHERS = """
select m.id, m.attempt from pgqueue_message m
where m.unlock_at is not null and m.worker = %s and m.id <> all (%s::bigint[])
order by m.id
"""


def message_release_others(connection: Connection, known: Iterable[int], *, worker: str) -> set[int]:
    """Releases what ``worker`` has locked besides the ``known`` messages: a claim whose answer it could not read."""
    with connection.cursor() as cursor:
        cursor.execute(OTHERS, (worker, array_of(known)))
        held = cursor.fetchall()
    if not held:
        return set()
    return answered_ids(connection, RELEASE, ([row[0] for row in held], [row[1] for row in held], worker))


def message_heartbeat(connection: Connection, messages: Iterable[Received], *, worker: str, lock_ms: int) -> set[int]:
    """Extends locks and returns the ids of the messages that ``worker`` still held; the others were lost."""
    held = sorted((message.id, message.attempt) for message in messages)
    return answered_ids(
        connection,
        "select pgqueue_message_heartbeat(%s::bigint[], %s::integer[], %s, %s)",
        ([id_ for id_, _ in held], [attempt for _, attempt in held], worker, lock_ms),
    )


def message_keep(connection: Connection, message: Received) -> bool:
    """Keeps a message until the end of the transaction.  False: the attempt was lost."""
    with connection.cursor() as cursor:
        cursor.execute(
            "select pgqueue_message_keep(%s::bigint, %s::integer, %s)", (message.id, message.attempt, message.worker)
        )
        return bool(cursor.fetchone()[0])


def message_progress(connection: Connection, message: Received, progress: str) -> bool:
    """Writes the progress of a message.  False: the attempt was lost."""
    with connection.cursor() as cursor:
        cursor.execute(
            "select pgqueue_message_progress(%s::bigint, %s::integer, %s, %s::jsonb)",
            (message.id, message.attempt, message.worker, progress),
        )
        return bool(cursor.fetchone()[0])


def message_cancellations(connection: Connection, ids: Iterable[int], *, worker: str) -> set[int]:
    """Returns the ids of the held messages whose cancellation was requested."""
    return answered_ids(connection, "select pgqueue_message_cancellations(%s::bigint[], %s)", (sorted(ids), worker))
