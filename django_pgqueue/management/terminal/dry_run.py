"""Shows what a worker would take next, and why it would not take the rest.  Nothing is changed."""

from __future__ import annotations

from typing import TYPE_CHECKING

from django.db import connections, transaction

from django_pgqueue import functions
from django_pgqueue.functions.channel import LANES
from django_pgqueue.management.terminal.text import table
from django_pgqueue.models.tables import Message
from django_pgqueue.monitoring.overview import bounded
from django_pgqueue.monitoring.overview.coverage import Service
from django_pgqueue.monitoring.overview.formatting import outside
from django_pgqueue.monitoring.overview.readable import readable
from django_pgqueue.monitoring.waiting import NoWorker, reasons, sentence
from django_pgqueue.values.times import EpochDateTime, to_epoch_ms

if TYPE_CHECKING:
    import datetime as dt
    from collections.abc import Iterator, Sequence

    from django_pgqueue.monitoring.waiting import Reason
    from django_pgqueue.worker.settings import WorkerSettings

MAX_LINES = 200
"""At most this many queues, and lanes of channels, are read."""

# The first messages of each line, each queue's scheduled ones, each lane, and the locked ones: index probes,
# however many messages there are.
OTHERS = f"""{LANES}
select m.id, m.queue, m.channel, m.task, m.worker, m.priority, m.dequeue_at, m.unlock_at, m.alone_at,
       m.unknown_since, m.parked_at, m.attempt, m.lost
from (
    select m.* from pgqueue_message_queues(%(lines)s) as q (queue) cross join pgqueue_message_levels() as l
    cross join lateral (
        select * from pgqueue_message m
        where (m.task is null) = l.p_raw and m.unlock_at is null and m.in_line and m.channel is null
          and m.priority = l.p_priority and m.queue = q.queue
        order by m.dequeue_at, m.id limit %(limit)s) as m
    union all
    select m.* from pgqueue_message_queues(%(lines)s) as q (queue) cross join (values (false), (true)) as raw (raw)
    cross join lateral (
        select * from pgqueue_message m
        where m.queue = q.queue and (m.task is null) = raw.raw and m.unlock_at is null and not m.in_line
          and m.channel is null
        order by m.priority desc, m.dequeue_at, m.id limit %(limit)s) as m
    union all
    select m.* from (select * from lane limit %(lines)s) as l cross join (values (false), (true)) as raw (raw)
    cross join lateral (
        select * from pgqueue_message m
        where m.channel = l.channel and m.queue = l.queue and (m.task is null) = raw.raw and m.unlock_at is null
        order by m.priority desc, m.dequeue_at, m.id limit %(limit)s) as m
    union all
    (select m.* from pgqueue_message m where m.unlock_at is not null order by m.unlock_at limit %(limit)s)
) as m
"""  # noqa: S608 -- a constant


def explain(settings: WorkerSettings, *, database: str, limit: int) -> Iterator[str]:
    """Yields two tables: the next ``limit`` messages in their order, and as many others with the reason."""
    connection = connections[database]
    with transaction.atomic(using=database):
        # A real dequeue, rolled back: a worker that dequeues at the same time skips these rows for some milliseconds.
        with readable(database):
            claimed = functions.message_dequeue(
                connection,
                queues=settings.queues,
                exclude_queues=settings.exclude_queues,
                limit=limit,
                lock_ms=settings.lock_ms,
                worker="qworker --dry-run",
                tasks=True,
            )
        transaction.set_rollback(True, using=database)
    now = functions.now(connection)
    if claimed:
        yield f"Next, in this order ({settings.served}):"
        head = ["#", "id", "queue", "priority", "due since", "attempt", "task"]
        dues = [EpochDateTime.from_ms(one.dequeue_at) for one in claimed]
        rows = [
            [n, one.id, one.queue, one.priority, outside(due) or due.isoformat(" ", "seconds"), one.attempt, one.task]
            for n, (one, due) in enumerate(zip(claimed, dues, strict=True), start=1)
        ]
        yield from _indented([head, *rows], left=(2, 4, 6))
    else:
        yield f"Nothing is ready ({settings.served})."
    this_worker = Service([(settings.queues, settings.exclude_queues)])
    with bounded(database):
        others = _others({message.id for message in claimed}, limit, using=database)
        whys = reasons(others, now, this_worker, using=database)
    if others:
        yield from ("", "Not now:")
        head = ["id", "queue", "priority", "task", "because"]
        rows = [
            [one.pk, one.queue, one.priority, one.task or "(raw)", _because(one, whys[one.pk], now)] for one in others
        ]
        yield from _indented([head, *rows], left=(1, 3, 4))


def _indented(rows: Sequence[Sequence[object]], *, left: Sequence[int]) -> Iterator[str]:
    yield from (f"  {line}" for line in table([[str(cell) for cell in row] for row in rows], left=left))


def _others(claimed: set[int], limit: int, *, using: str) -> list[Message]:
    asked = {"limit": limit + len(claimed), "lines": MAX_LINES}
    others = [other for other in Message.objects.using(using).raw(OTHERS, asked) if other.pk not in claimed]
    return sorted(others, key=lambda other: (-other.priority, to_epoch_ms(other.dequeue_at), other.pk))[:limit]


def _because(other: Message, whys: Sequence[Reason], now: dt.datetime) -> str:
    if other.task is None and other.unlock_at is None:
        return "It is a raw message: Queue.receive() takes it, and no worker."
    if any(isinstance(why, NoWorker) for why in whys):
        return "This worker does not serve its queue."
    return sentence(whys[0], now) if whys else "Other messages come first."
