"""Workers: that they are there, and whether they sleep."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

    from django_pgqueue.functions.connection import Connection


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
    tasks: bool = True,
    has_room: bool = False,
) -> int:
    """Says that a worker is alive and, with ``asleep_ms``, that it waits to be woken.  Not worth waiting for a disk.

    Answers how many workers are registered, this one included.
    """
    with connection.cursor() as cursor:
        cursor.execute(
            "with setting as materialized (select set_config('synchronous_commit', 'off', true)) "
            "select pgqueue_worker_seen(%s, %s::text[], %s::text[], %s, %s, %s, %s::bigint, %s, %s), "
            "(select count(*) from pgqueue_worker w where w.id <> %s) from setting",
            (
                worker,
                None if queues is None else list(queues),
                list(exclude_queues),
                hostname,
                pid,
                slots,
                asleep_ms,
                tasks,
                has_room,
                worker,
            ),
        )
        return 1 + int(cursor.fetchone()[1])


def worker_wake(connection: Connection, queue: str, *, tasks: bool) -> None:
    """Wakes one sleeper of ``queue``, if there is one: a worker, or who listens for raw messages."""
    with connection.cursor() as cursor:
        cursor.execute("select pgqueue_worker_wake(%s, %s)", (queue, tasks))


def worker_wake_next(connection: Connection, queues: Sequence[str] | None) -> None:
    """Wakes one sleeper for each of the queues, or of all that have messages: somebody who said that he had room has
    none any more, and who enqueued meanwhile has woken nobody.
    """
    with connection.cursor() as cursor:
        cursor.execute(
            "select pgqueue_worker_wake(q, true) "
            "from unnest(coalesce(%s::text[], array(select n from pgqueue_message_queues() as n))) as q",
            (None if queues is None else list(queues),),
        )


def worker_gone(connection: Connection, worker: str) -> None:
    """Signs a worker off."""
    with connection.cursor() as cursor:
        cursor.execute("select pgqueue_worker_gone(%s)", (worker,))
