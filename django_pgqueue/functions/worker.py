"""Workers: that they are there, and whether they sleep."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from django_pgqueue.functions.connection import array_of

if TYPE_CHECKING:
    from collections.abc import Sequence

    from django_pgqueue.functions.connection import Connection


class Company(NamedTuple):
    """Whom a worker is among, itself included."""

    workers: int
    with_room: int
    """Those that are awake, serve the same queues and say that they have room."""
    quarantine_waits: bool = False
    """Whether quarantined messages of these queues are due: somebody shall take them alone."""


# Whether anything is quarantined.  The order leads along pgqueue_message_alone_ix; without it a table that was never
# analysed is read from end to end.
IS_QUARANTINED = (
    "(select true from pgqueue_message m where m.alone_at is not null order by m.lost, m.alone_at, m.id limit 1)"
)

# The function is called only where something is: a call costs more than all the rest.
SEEN = f"""
with setting as materialized (select set_config('synchronous_commit', 'off', true))
select pgqueue_worker_seen(%s, %s::text[], %s::text[], %s, %s, %s, %s::bigint, %s, %s, %s), o.workers, o.with_room,
       case when %s and {IS_QUARANTINED}
            then pgqueue_quarantine_waits(%s::text[], %s::text[]) else false end
from setting cross join (
    select count(*) as workers, count(*) filter (where
        w.has_room and w.asleep_until is null and w.tasks = %s
        and w.queues is not distinct from %s::text[] and w.exclude_queues = %s::text[]
        and w.seen_at > pgqueue_clock() - interval '2 seconds') as with_room
    from pgqueue_worker w where w.id <> %s
) as o
"""  # noqa: S608 -- our own text


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
    problem: str | None = None,
) -> Company:
    """Says that a worker is alive and, with ``asleep_ms``, that it waits to be woken.  Not worth waiting for a disk."""
    served = (None if queues is None else list(queues), list(exclude_queues))
    with connection.cursor() as cursor:
        cursor.execute(
            SEEN,
            (
                worker,
                *served,
                hostname,
                pid,
                slots,
                asleep_ms,
                tasks,
                has_room,
                problem,
                tasks,
                *served,
                tasks,
                *served,
                worker,
            ),
        )
        _, others, with_room, quarantine_waits = cursor.fetchone()
        return Company(1 + others, int(has_room) + with_room, quarantine_waits)


def worker_wake(connection: Connection, queue: str, *, tasks: bool) -> None:
    """Wakes one sleeper of ``queue``, if there is one: a worker, or who listens for raw messages."""
    with connection.cursor() as cursor:
        cursor.execute("select pgqueue_worker_wake(%s, %s)", (queue, tasks))


def worker_wake_next(connection: Connection, queues: Sequence[str] | None) -> None:
    """Wakes one sleeper for each of the queues, or of the first hundred that have messages.

    For a worker that said that it had room and has none any more: who enqueued meanwhile has woken nobody.
    """
    with connection.cursor() as cursor:
        cursor.execute(
            "select pgqueue_worker_wake(q, true) "
            "from unnest(coalesce(%s::text[], array(select n from pgqueue_message_queues(100) as n))) as q "
            "where exists (select from pgqueue_worker w where w.asleep_until is not null)",
            (None if queues is None else list(queues),),
        )


def worker_gone(connection: Connection, worker: str) -> None:
    """Signs a worker off."""
    with connection.cursor() as cursor:
        cursor.execute("select pgqueue_worker_gone(%s)", (worker,))


def worker_died(
    connection: Connection, worker: str, *, ids: Sequence[int], attempts: Sequence[int], running: Sequence[bool]
) -> int:
    """Ends what a dead worker held, and returns how many attempts were lost.

    ``ids`` and ``attempts`` are what it had begun; ``running`` says of each whether it ran when the worker died.
    """
    with connection.cursor() as cursor:
        cursor.execute(
            "select pgqueue_worker_died(%s, %s::bigint[], %s::integer[], %s::boolean[])",
            (worker, array_of(ids), array_of(attempts), array_of(str(one).lower() for one in running)),
        )
        return int(cursor.fetchone()[0])
