"""Workers: their presence, and waking those that are idle."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from django_pgqueue.functions.connection import array_of

if TYPE_CHECKING:
    from collections.abc import Sequence

    from django_pgqueue.functions.connection import Connection


MISSED_AFTER_MS = 6000
"""A worker that has not been seen for this long, and of which no session is left, is gone.  Only then others look for
its sessions."""
IS_MISSED = (
    "w.server_started_at is not null and w.silent_until is null "
    f"and w.seen_at not between pgqueue_clock() - interval '{MISSED_AFTER_MS} milliseconds' "
    "and pgqueue_clock() + interval '10 minutes'"
)


class Company(NamedTuple):
    """Numbers of workers, with the calling worker included."""

    workers: int
    with_room: int
    """Number of workers that are awake, serve the same queues and have free slots."""
    quarantine_waits: bool = False
    """Whether quarantined messages of these queues are due: a worker shall claim each of them alone."""
    has_parked: bool = False
    """Whether any message is parked, because a worker does not know its task."""
    misses_one: bool = False
    """Whether a worker whose session would tell that it lives has not been seen for some seconds."""
    has_edit: bool = False
    """Whether an edit is to be done."""
    ordered: str | None = None
    """What a person has ordered the worker to do: "pause" or "stop"."""
    ordered_slots: int | None = None
    ordered_by: str | None = None


# Whether any message is quarantined.  The order by makes PostgreSQL use pgqueue_message_alone_ix; without it, it reads
# a table that was never analysed from end to end.
IS_QUARANTINED = (
    "(select true from pgqueue_message m where m.alone_at is not null order by m.lost, m.alone_at, m.id limit 1)"
)

IS_PARKED = (
    "(select true from pgqueue_message m where m.parked_at is not null and m.task is not null "
    "order by m.queue, m.task, m.parked_at limit 1)"
)

HAS_EDIT = (
    "(select true from pgqueue_edit e where e.finished_at is null and e.stopped_at is null order by e.id limit 1)"
)

# pgqueue_quarantine_waits is called only if a message is quarantined: the call costs more than all the rest.
SEEN = f"""
with setting as materialized (select set_config('synchronous_commit', 'off', true))
select pgqueue_worker_seen(%s, %s::text[], %s::text[], %s, %s, %s, %s::bigint, %s, %s, %s, %s), o.workers, o.with_room,
       case when %s and {IS_QUARANTINED}
            then pgqueue_quarantine_waits(%s::text[], %s::text[]) else false end,
       %s and {IS_PARKED} is not null, o.misses_one, {HAS_EDIT} is not null,
       own.ordered, own.ordered_slots, own.ordered_by
from setting cross join (
    select count(*) as workers, count(*) filter (where
        w.has_room and w.asleep_until is null and w.tasks = %s
        and w.queues is not distinct from %s::text[] and w.exclude_queues = %s::text[]
        and w.seen_at between pgqueue_clock() - interval '2 seconds'
            and pgqueue_clock() + interval '2 seconds') as with_room,
        coalesce(bool_or({IS_MISSED}), false) as misses_one
    from pgqueue_worker w where w.id <> %s
) as o
left join pgqueue_worker own on own.id = %s
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
    held: bool = False,
) -> Company:
    """Records that a worker is alive and, with ``asleep_ms``, waits to be woken.  It does not wait for the disk.

    ``held``: its sessions hold its advisory lock (``worker_hold``).
    """
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
                held,
                tasks,
                *served,
                tasks,
                tasks,
                *served,
                worker,
                worker,
            ),
        )
        _, others, with_room, *news = cursor.fetchone()
        return Company(1 + others, int(has_room) + with_room, *news)


def worker_lacks(connection: Connection, worker: str, lacks: Sequence[str], refuses: Sequence[str] = ()) -> None:
    """Records which tasks of parked messages the worker does not know, and of which ones it can take no arguments."""
    with connection.cursor() as cursor:
        cursor.execute("select pgqueue_worker_lacks(%s, %s::text[], %s::text[])", (worker, list(lacks), list(refuses)))


def worker_version(connection: Connection, worker: str, version: str) -> None:
    """Records the version of the deploy that the worker runs."""
    with connection.cursor() as cursor:
        cursor.execute("select pgqueue_worker_version(%s, %s)", (worker, version))


class Deployed(NamedTuple):
    """A living worker with a version."""

    version: str
    queues: list[str] | None
    exclude_queues: list[str]
    lacks: list[str] | None
    refuses: list[str] | None


DEPLOYED = """
select distinct w.version, w.queues, w.exclude_queues, w.lacks, w.refuses
from pgqueue_worker w
where w.tasks and w.version is not null
  and (w.seen_at > pgqueue_clock() - interval '1 minute' or w.silent_until > pgqueue_now())
"""


def workers_deployed(connection: Connection) -> list[Deployed]:
    """Returns the versions of the living workers, with what they serve, lack and refuse."""
    with connection.cursor() as cursor:
        cursor.execute(DEPLOYED)
        return [Deployed(*row) for row in cursor.fetchall()]


# One statement, so that a database in which nothing happens runs one in each IDLE_POLL_SECONDS.  It reads the clock
# last: what is due now is not due a millisecond later.
REST = f"""
update pgqueue_worker w
set seen_at = pgqueue_clock(), silent_until = pgqueue_now() + %s::bigint,
    asleep_until = case when %s::boolean then pgqueue_now() + %s::bigint end
where w.id = %s
returning least(
    pgqueue_message_next_at(%s::text[], %s::text[], true),
    pgqueue_message_attention_at(),
    (select min(s.next_at) from pgqueue_schedule s
     where s.paused_at is null and (not s.declared or s.name = any (%s::text[]))),
    (select pgqueue_now() where {HAS_EDIT})),
    exists (select from pgqueue_worker o
            where o.tasks and o.id <> w.id and o.silent_until is null
              and o.seen_at > pgqueue_clock() - interval '1 minute'),
    w.ordered, w.ordered_slots, pgqueue_now()
"""  # noqa: S608 -- our own text


class Outlook(NamedTuple):
    """The answer to a worker that wants to rest."""

    due_at: int | None
    """When something will be due; None: nothing is known to come."""
    others_are_awake: bool
    """Another living worker does not rest."""
    ordered: str | None
    ordered_slots: int | None
    """As in ``Company``."""
    now: int
    """Like ``due_at`` in epoch ms."""

    def ordered_differs(self, known: Company) -> bool:
        return (self.ordered, self.ordered_slots) != (known.ordered, known.ordered_slots)


def worker_rest(
    connection: Connection,
    *,
    worker: str,
    queues: Sequence[str] | None,
    exclude_queues: Sequence[str],
    schedules: Sequence[str],
    silent_ms: int,
    asleep_ms: int | None,
) -> Outlook | None:
    """Records that a worker has nothing to do and will be silent for ``silent_ms``.  Returns None if it has no row.

    ``asleep_ms``: for how long it waits for notifications; None: it does not.  ``schedules``: the declared schedules
    that it fires.
    """
    with connection.cursor() as cursor:
        cursor.execute(
            REST,
            (
                silent_ms,
                asleep_ms is not None,
                asleep_ms,
                worker,
                None if queues is None else list(queues),
                list(exclude_queues),
                list(schedules),
            ),
        )
        row = cursor.fetchone()
        return None if row is None else Outlook(*row)


class OpenTransactions(NamedTuple):
    """Transactions that may be open at some moment: an enqueue in one of them may have read the workers before it."""

    before: int
    """Transactions with lower ids."""
    at: Any


def open_transactions(connection: Connection) -> OpenTransactions:
    """Returns those that may be open now."""
    with connection.cursor() as cursor:
        cursor.execute("select pg_snapshot_xmax(pg_current_snapshot())::text::bigint, clock_timestamp()")
        return OpenTransactions(*cursor.fetchone())


# The second part is for REPEATABLE READ, where a transaction may have read the workers before it had an id.  The
# sessions of other roles are not visible here.  With track_activities off nobody knows when a transaction began.
ARE_OVER = """
select pg_snapshot_xmin(pg_current_snapshot())::text::bigint >= %s::bigint and not exists (
    select from pg_stat_activity a
    where a.datname = current_database() and a.pid <> pg_backend_pid() and a.backend_type = 'client backend'
      and a.backend_xmin is not null and (a.xact_start < %s::timestamptz or a.xact_start is null))
"""


def transactions_are_over(connection: Connection, those: OpenTransactions) -> bool:
    """Whether all those transactions have ended, so that what they have enqueued is visible from now on."""
    with connection.cursor() as cursor:
        cursor.execute(ARE_OVER, those)
        return bool(cursor.fetchone()[0])


def worker_wake_resting(connection: Connection, queue: str) -> None:
    """Wakes the workers of ``queue`` that rest: something has changed of which no enqueue tells them."""
    with connection.cursor() as cursor:
        cursor.execute("select pgqueue_worker_wake_by(%s, null, pgqueue_now())", (queue,))


def worker_wake(connection: Connection, queue: str) -> None:
    """Wakes one idle consumer of raw messages of ``queue``, if there is one: the caller cannot take more, or leaves."""
    with connection.cursor() as cursor:
        cursor.execute("select pgqueue_worker_wake(%s, false, true)", (queue,))


def worker_wake_next(connection: Connection, queues: Sequence[str] | None) -> None:
    """Wakes one idle worker for each of the queues (None: of the first hundred that have messages).

    A worker that had announced free slots and has none any more calls this: enqueues in between have woken no worker.
    """
    with connection.cursor() as cursor:
        cursor.execute(
            "select pgqueue_worker_wake(q, true, true) "
            "from unnest(coalesce(%s::text[], array(select n from pgqueue_message_queues(100) as n))) as q "
            "where exists (select from pgqueue_worker w where w.asleep_until is not null)",
            (None if queues is None else list(queues),),
        )


def worker_gone(connection: Connection, worker: str) -> None:
    """Removes a worker that stops."""
    with connection.cursor() as cursor:
        cursor.execute("select pgqueue_worker_gone(%s)", (worker,))


def worker_order(
    connection: Connection, worker: str, order: str, *, slots: int | None = None, by: str | None = None
) -> bool:
    """Gives an order to a worker.  False: no such worker lives."""
    with connection.cursor() as cursor:
        cursor.execute("select pgqueue_worker_order(%s, %s, %s, %s)", (worker, order, slots, by))
        return bool(cursor.fetchone()[0])


def worker_hold(connection: Connection, worker: str) -> bool:
    """Lets the session hold the advisory lock of a worker, and returns whether it does: while the session lasts, others
    know that the worker lives.
    """
    with connection.cursor() as cursor:
        cursor.execute("select pgqueue_worker_hold(%s)", (worker,))
        return bool(cursor.fetchone()[0])


def worker_expire(connection: Connection) -> int:
    """Ends attempts of workers that are gone, and returns how many: a hundred at most."""
    with connection.cursor() as cursor:
        cursor.execute("select pgqueue_worker_expire(%s)", (MISSED_AFTER_MS,))
        return int(cursor.fetchone()[0])


def worker_died(
    connection: Connection, worker: str, *, ids: Sequence[int], attempts: Sequence[int], running: Sequence[bool]
) -> int:
    """Ends the attempts of a dead worker, and returns how many of them were lost.

    ``ids`` and ``attempts``: the attempts that it had begun.  ``running``: whether each still ran when the worker died.
    """
    with connection.cursor() as cursor:
        cursor.execute(
            "select pgqueue_worker_died(%s, %s::bigint[], %s::integer[], %s::boolean[])",
            (worker, array_of(ids), array_of(attempts), array_of(str(one).lower() for one in running)),
        )
        return int(cursor.fetchone()[0])
