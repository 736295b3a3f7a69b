"""Functions for messages that the caller does not hold: cancel, reschedule, move, prioritise, settle."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from django_pgqueue.functions.connection import answered_ids
from django_pgqueue.functions.worker import IS_MISSED

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from django_pgqueue.functions.connection import Connection


def message_cancel(connection: Connection, ids: Iterable[int]) -> set[int]:
    """Cancels waiting messages and returns their ids."""
    return answered_ids(connection, "select pgqueue_message_cancel(%s::bigint[])", (sorted(ids),))


def message_request_cancel(connection: Connection, ids: Iterable[int]) -> set[int]:
    """Asks the consumers of running messages to stop, and returns the ids of these messages."""
    return answered_ids(connection, "select pgqueue_message_request_cancel(%s::bigint[])", (sorted(ids),))


def messages_left(connection: Connection, ids: Iterable[int]) -> set[int]:
    """Returns those of these messages that are in the queue: the others have ended."""
    return answered_ids(
        connection, "select m.id from pgqueue_message m where m.id = any (%s::bigint[])", (sorted(ids),)
    )


def messages_ended(connection: Connection, ids: Iterable[int]) -> set[int]:
    """Returns those of these messages whose end is in the history."""
    return answered_ids(
        connection,
        "select a.message_id from pgqueue_attempt a where a.message_id = any (%s::bigint[]) and a.final",
        (sorted(ids),),
    )


def message_reschedule(
    connection: Connection, ids: Iterable[int], *, delay_ms: int = 0, break_dependencies: bool = False
) -> set[int]:
    """Lets waiting messages become ready ``delay_ms`` from now, and returns their ids.

    Messages that wait for others are left alone.  ``break_dependencies``: these are moved, too, and do not wait for the
    others any more.
    """
    return answered_ids(
        connection,
        "select pgqueue_message_reschedule(%s::bigint[], pgqueue_now() + %s::bigint, %s)",
        (sorted(ids), delay_ms, break_dependencies),
    )


def message_move(connection: Connection, message_id: int, *, dequeue_at: int) -> bool:
    """Sets the ``dequeue_at`` (epoch ms) of a waiting message.  False: it runs, has ended, or waits for others."""
    moved = answered_ids(
        connection, "select pgqueue_message_reschedule(%s::bigint[], cast(%s as bigint))", ([message_id], dequeue_at)
    )
    return bool(moved)


def message_prioritise(connection: Connection, message_id: int, priority: int) -> bool:
    """Sets the priority of a waiting message.  False: it runs or has ended."""
    with connection.cursor() as cursor:
        cursor.execute(
            "update pgqueue_message m set priority = %s where m.id = %s and m.worker is null", (priority, message_id)
        )
        return bool(cursor.rowcount)


def message_settle(connection: Connection) -> int:
    """Checks messages that wait for others, and returns how many of them need not wait any more."""
    with connection.cursor() as cursor:
        cursor.execute("select pgqueue_message_settle()")
        return int(cursor.fetchone()[0])


def message_settling(connection: Connection) -> tuple[int, int] | None:
    """Returns what message_settle would go on with at once, as a mark that changes when it has; None: nothing."""
    with connection.cursor() as cursor:
        cursor.execute("select count(*), max(id) from pgqueue_ended where look_at <= pgqueue_now()")
        count, latest = cursor.fetchone()
        return (count, latest) if count else None


class Prospect(NamedTuple):
    """The answer to a consumer before a poll: what may still come if that finds nothing."""

    next_at: int | None
    """The earliest ``dequeue_at`` of the messages that wait in its queues."""
    now: int
    """Both are epoch ms."""
    writing: frozenset[int]
    """Ids of the transactions that were open: see ``transactions_writing``."""
    misses_one: bool = False
    """See ``Company``."""


WRITING = "array(select x::text::bigint from pg_snapshot_xip(pg_current_snapshot()) as x)"
PROSPECT = f"""
select pgqueue_message_next_at(%s::text[], %s::text[], %s), pgqueue_now(), {WRITING},
       exists (select from pgqueue_worker w where {IS_MISSED})
"""  # noqa: S608 -- our own text


def message_prospect(
    connection: Connection, *, queues: Sequence[str] | None, exclude_queues: Sequence[str] = (), tasks: bool = False
) -> Prospect:
    """Asked before a look, so that each commit is either seen by the look or by a transaction of ``writing``."""
    with connection.cursor() as cursor:
        cursor.execute(PROSPECT, (None if queues is None else list(queues), list(exclude_queues), tasks))
        next_at, now, writing, misses_one = cursor.fetchone()
        return Prospect(next_at, now, frozenset(writing), misses_one)


def transactions_writing(connection: Connection) -> frozenset[int]:
    """Returns the ids of the transactions that have written something and are open, those of other databases too."""
    with connection.cursor() as cursor:
        cursor.execute(f"select {WRITING}")
        return frozenset(cursor.fetchone()[0])


def quarantine_waits(connection: Connection, *, queues: Sequence[str] | None, exclude_queues: Sequence[str]) -> bool:
    """Whether ``quarantine_dequeue`` would take a message now."""
    with connection.cursor() as cursor:
        cursor.execute(
            "select pgqueue_quarantine_waits(%s::text[], %s::text[])",
            (None if queues is None else list(queues), list(exclude_queues)),
        )
        return bool(cursor.fetchone()[0])
