"""Dequeue: the claim, and the messages that it returns."""

from __future__ import annotations

from contextvars import ContextVar
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple, TypedDict

import psycopg
from psycopg.adapt import Transformer
from psycopg.pq import Format

if TYPE_CHECKING:
    import datetime as dt
    from collections.abc import Callable, Sequence
    from typing import Unpack

    from psycopg.pq.abc import PGresult

    from django_pgqueue.functions.connection import Connection


@dataclass(slots=True)
class Received:
    """Message that a consumer holds: ``(id, attempt, worker)`` is the token that ends the attempt."""

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
    version: str | None = None
    unknown: bool = False
    """A worker has given it back, because it could not take it, and no attempt has begun since."""
    kept: bool = False
    """True while the transaction of an atomic task holds the row (``pgqueue_message_keep``), and when it has ended the
    message: no heartbeat or progress may change it then."""


running: ContextVar[Received | None] = ContextVar("pgqueue_message", default=None)
"""Message whose task runs here, in this thread or coroutine."""


class Token(NamedTuple):
    """Token that ends an attempt, for a message that cannot be read."""

    id: int
    attempt: int
    worker: str


@dataclass(frozen=True, slots=True)
class Floor:
    """Place at which the last dequeue of one priority of a queue stopped: the next dequeue may begin there."""

    queue: str
    priority: int
    dequeue_at: int
    id: int


COLUMNS = """
id, attempt, max_attempts, priority, queue, channel, task, worker, dequeue_at, created_at, locked_at,
content::text, headers::text, state::text, version, unknown_since is not null
"""
CONTENT = COLUMNS.split(",").index("\ncontent::text")


DEQUEUE = f"""
select {COLUMNS}
from pgqueue_message_dequeue(
    %s::text[], %s, %s, %s, %s::text[], %s, %s::text[], %s::integer[], %s::bigint[], %s::bigint[])
"""  # noqa: S608 -- our own columns


# If the server crashes and loses a claim, the message is as before the claim: so the claim need not wait for the disk.
# The setting ends with the transaction, so the statement must be a transaction of its own.
DEQUEUE_UNFLUSHED = (
    "with setting as materialized (select set_config('synchronous_commit', 'off', true))"
    + DEQUEUE.replace("from pgqueue_message_dequeue", "from setting cross join lateral pgqueue_message_dequeue")
)


# The first row has the time that the statement waited for its turn.  The others are claimed after that.
DEQUEUE_IN_TURN = (
    """
select turn.waited_ms, null, null, null, null, null, null, null, null, null, null, null, null, null, null, null
from (
    select set_config('synchronous_commit', 'off', true), pgqueue_message_await_turn(%s::text[], %s) as waited_ms
) as turn
union all"""
    + DEQUEUE
)


DEQUEUE_APART = DEQUEUE.replace("%s::bigint[])", "%s::bigint[], false)")


def _with_care(statement: str) -> str:
    """Returns a statement whose content is null where content, headers or state are too large to be sent, or a text
    has bytes that are no UTF8, so that they take no other row along.
    """
    columns = COLUMNS.replace(
        "content::text, headers::text, state::text",
        "case when has_names and num_nulls(headers, state) = num_nulls(headers_text, state_text) then content_text "
        "end, headers_text, state_text",
    )
    for name in ("queue", "channel", "task", "version"):
        columns = columns.replace(f" {name},", f" case when has_names then {name} end,")
    return f"""{statement.replace(COLUMNS, columns)} as claimed cross join lateral (
    select pgqueue_message_readable(claimed.content)::text as content_text,
           pgqueue_message_readable(claimed.headers)::text as headers_text,
           pgqueue_message_readable(claimed.state)::text as state_text,
           pgqueue_message_readable(jsonb_build_array(
               claimed.queue, claimed.channel, claimed.task, claimed.version)) is not null as has_names
    offset 0) as readable"""


DEQUEUE_WITH_CARE = _with_care(DEQUEUE_UNFLUSHED.rstrip())


def message_dequeue(
    connection: Connection,
    *,
    flush: bool = True,
    brief: bool = True,
    care: bool = False,
    unreadable: Callable[[int, int, Exception], None] | None = None,
    **wanted: Unpack[DequeueArguments],
) -> list[Received]:
    """Claims and locks ready messages.

    ``flush=False``: the claim's own transaction does not wait for the disk.
    ``brief=False``: the transaction goes on after the claim.
    ``care``: each row is read in its own right, for a consumer whose last claim could not be sent; never flushed.
    ``unreadable`` is called with the id, the attempt and the error of each row that was claimed and cannot be read.
    """
    with connection.cursor() as cursor:
        statement = (DEQUEUE if flush else DEQUEUE_UNFLUSHED) if brief else DEQUEUE_APART
        cursor.execute(DEQUEUE_WITH_CARE if care else statement, _parameters(wanted))
        return [Received(*row) for row in _readable(cursor, unreadable)]


def message_dequeue_in_turn(
    connection: Connection,
    *,
    wait_ms: int,
    unreadable: Callable[[int, int, Exception], None] | None = None,
    **wanted: Unpack[DequeueArguments],
) -> tuple[list[Received], int | None]:
    """Claims as ``message_dequeue(flush=False)`` does, in turn with the other sessions that call this for these queues.

    Also returns how many ms it waited for its turn, or None if its turn did not come within ``wait_ms``.
    """
    parameters = _parameters(wanted)
    with connection.cursor() as cursor:
        cursor.execute(DEQUEUE_IN_TURN, (parameters[0], wait_ms, *parameters))
        (waited_ms, *_), *rows = _readable(cursor, unreadable)
        return [Received(*row) for row in rows], waited_ms


# A claim is flushed with everything else that was written before.  The message makes this a transaction that writes.
FLUSH = """
select case when current_setting('synchronous_commit') = 'off' then set_config('synchronous_commit', 'local', true) end,
       pg_logical_emit_message(true, 'pgqueue', '')
"""


def flush(connection: Connection) -> None:
    """Waits until the disk has earlier claims.  In a transaction, the commit waits."""
    with connection.cursor() as cursor:
        cursor.execute(FLUSH)


QUARANTINE_DEQUEUE = f"select {COLUMNS} from pgqueue_quarantine_dequeue(%s::text[], %s, %s, %s::text[])"  # noqa: S608
QUARANTINE_DEQUEUE_WITH_CARE = _with_care(QUARANTINE_DEQUEUE)


def quarantine_dequeue(
    connection: Connection,
    *,
    queues: Sequence[str] | None,
    exclude_queues: Sequence[str],
    lock_ms: int,
    worker: str,
    care: bool = False,
    unreadable: Callable[[int, int, Exception], None] | None = None,
) -> list[Received]:
    """Claims and locks one quarantined message, if one is due.  ``care``, ``unreadable``: as in ``message_dequeue``."""
    with connection.cursor() as cursor:
        cursor.execute(
            QUARANTINE_DEQUEUE_WITH_CARE if care else QUARANTINE_DEQUEUE,
            (None if queues is None else list(queues), lock_ms, worker, list(exclude_queues)),
        )
        return [Received(*row) for row in _readable(cursor, unreadable)]


def _readable(cursor: Any, unreadable: Callable[[int, int, Exception], None] | None) -> list[tuple[Any, ...]]:
    """Returns the rows of a result, without those that Python cannot represent: ``unreadable`` is called with these.

    The consumer holds the unreadable messages as well.  Without ``unreadable`` one such row raises for all of them.
    """
    try:
        rows = list(cursor.fetchall())
    except (psycopg.DataError, UnicodeError):
        if unreadable is None:
            raise
    else:
        return rows if unreadable is None else _sent(rows, unreadable)
    result, rows = cursor.pgresult, []
    transformer = Transformer(cursor.connection)
    transformer.set_pgresult(result)
    for number in range(result.ntuples):
        try:
            rows.append(transformer.load_row(number, tuple))
        except (psycopg.DataError, UnicodeError) as error:
            unreadable(_integer(result, number, 0), _integer(result, number, 1), error)
    return _sent(rows, unreadable)


def _sent(rows: list[tuple[Any, ...]], unreadable: Callable[[int, int, Exception], None]) -> list[tuple[Any, ...]]:
    """Returns the rows without those that were read with care and are too large."""
    sent = []
    for row in rows:
        if row[CONTENT] is None and row[1] is not None:  # not the wait for a turn
            unreadable(row[0], row[1], psycopg.DataError("its text is too large to be sent, or is no UTF-8"))
        else:
            sent.append(row)
    return sent


def _integer(result: PGresult, row: int, column: int) -> int:
    value = result.get_value(row, column) or b""
    return int.from_bytes(value, signed=True) if result.fformat(column) == Format.BINARY else int(value)


class DequeueArguments(TypedDict, total=False):
    """Parameters of pgqueue_message_dequeue."""

    queues: Sequence[str] | None
    exclude_queues: Sequence[str]
    limit: int
    lock_ms: int
    worker: str | None
    tasks: bool
    floors: Sequence[Floor] | None


def _parameters(wanted: DequeueArguments) -> tuple[Any, ...]:
    queues, floors = wanted.get("queues"), wanted.get("floors")
    return (
        None if queues is None else list(queues),
        wanted.get("limit", 1),
        wanted.get("lock_ms", 60_000),
        wanted.get("worker"),
        list(wanted.get("exclude_queues", ())),
        wanted.get("tasks", False),
        None if floors is None else [floor.queue for floor in floors],
        None if floors is None else [floor.priority for floor in floors],
        None if floors is None else [floor.dequeue_at for floor in floors],
        None if floors is None else [floor.id for floor in floors],
    )
