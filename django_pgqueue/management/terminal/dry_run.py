"""What a worker would take next, and why it would not take the rest.  Nothing is changed."""

from __future__ import annotations

import datetime as dt
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from django.db import connections, transaction

from django_pgqueue import functions
from django_pgqueue.models.tables import Channel, QueueState
from django_pgqueue.values.times import EpochDateTime, to_epoch_ms

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from django_pgqueue.worker.settings import WorkerSettings

MAX_LINES = 200
"""Queues, and lanes of channels, that are looked at."""

# The first of each line, of what is scheduled in each queue, of each lane, and of the locked ones: index probes,
# however many messages there are.
OTHERS = """
with recursive lane as (
    (select m.channel, m.queue from pgqueue_message m where m.unlock_at is null and m.channel is not null
     order by m.channel, m.queue limit 1)
    union all
    select n.channel, n.queue from lane l cross join lateral (
        select m.channel, m.queue from pgqueue_message m
        where m.unlock_at is null and m.channel is not null and (m.channel, m.queue) > (l.channel, l.queue)
        order by m.channel, m.queue limit 1) as n
)
select m.id, m.queue, m.priority, m.dequeue_at, m.unlock_at, m.worker, m.task, m.after_ids is not null,
       m.alone_at is not null, m.channel
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
"""


@dataclass(frozen=True, slots=True)
class Other:
    id: int
    queue: str
    priority: int
    dequeue_at: int
    unlock_at: int | None
    worker: str | None
    task: str | None
    waits_for_others: bool
    is_quarantined: bool
    channel: str | None


def explain(settings: WorkerSettings, *, database: str, limit: int) -> Iterator[str]:
    """The lines of two tables: the next ``limit`` messages in their order, and as many others with the reason."""
    connection = connections[database]
    with transaction.atomic(using=database):
        # The real thing, taken back: whoever looks at the same time passes over these rows for some milliseconds.
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
        yield from table(_next(claimed))
    else:
        yield f"Nothing is ready ({settings.served})."
    others = _others(connection, {message.id for message in claimed}, limit)
    if others:
        paused = {row.name: row for row in QueueState.objects.using(database).filter(paused_at__isnull=False)}
        yield ""
        yield "Not now:"
        channels = Channel.objects.using(database).in_bulk({other.channel for other in others if other.channel})
        yield from table(_not_now(others, settings, paused, channels, now))


def table(rows: Sequence[Sequence[Any]]) -> Iterator[str]:
    """Columns of equal width; numbers to the right."""
    texts = [[str(cell) for cell in row] for row in rows]
    widths = [max(len(row[n]) for row in texts) for n in range(len(texts[0]))]
    numbers = [isinstance(cell, int) for cell in rows[-1]]
    for row in texts:
        cells = zip(row, widths, numbers, strict=True)
        yield "  " + "  ".join(c.rjust(width) if number else c.ljust(width) for c, width, number in cells).rstrip()


def _next(claimed: Sequence[functions.Received]) -> list[tuple[Any, ...]]:
    rows = [
        (n, message.id, message.queue, message.priority, _time(message.dequeue_at), message.attempt, message.task)
        for n, message in enumerate(claimed, start=1)
    ]
    return [("#", "id", "queue", "priority", "due since", "attempt", "task"), *rows]


def _others(connection: Any, claimed: set[int], limit: int) -> list[Other]:
    with connection.cursor() as cursor:
        cursor.execute(OTHERS, {"limit": limit + len(claimed), "lines": MAX_LINES})
        others = [Other(*row) for row in cursor.fetchall()]
    others.sort(key=lambda other: (-other.priority, other.dequeue_at, other.id))
    return [other for other in others if other.id not in claimed][:limit]


def _not_now(
    others: Sequence[Other],
    settings: WorkerSettings,
    paused: dict[str, QueueState],
    channels: dict[str, Channel],
    now: dt.datetime,
) -> list[tuple[Any, ...]]:
    rows = [
        (other.id, other.queue, other.priority, other.task or "(raw)", _why(other, settings, paused, channels, now))
        for other in others
    ]
    return [("id", "queue", "priority", "task", "because"), *rows]


def _why(
    other: Other,
    settings: WorkerSettings,
    paused: dict[str, QueueState],
    channels: dict[str, Channel],
    now: dt.datetime,
) -> str:
    queue, until = other.queue, other.unlock_at
    state, wait_ms = paused.get(queue), other.dequeue_at - to_epoch_ms(now)
    is_served = queue not in settings.exclude_queues and (settings.queues is None or queue in settings.queues)
    reasons = (
        (until is not None, f"it is locked by {other.worker} until {_time(until or 0)}"),
        (other.task is None, "it is a raw message: Queue.receive takes it"),
        (not is_served, "this worker does not serve its queue"),
        (state is not None, "its queue is paused" + (f" by {state.paused_by}" if state and state.paused_by else "")),
        (other.waits_for_others, "it waits for other jobs"),
        (other.is_quarantined, "it is quarantined, because its worker died: a process of its own takes it alone"),
        (wait_ms > 0, f"it is scheduled for {_time(other.dequeue_at)}, in {_rounded(wait_ms)}"),
    )
    limited = _limit(channels.get(other.channel or ""), now)
    return next((words for applies, words in reasons if applies), limited or "others come first")


def _limit(channel: Channel | None, now: dt.datetime) -> str | None:
    """What keeps the messages of a channel back."""
    if channel is None:
        return None
    if channel.max_concurrency is not None and channel.running >= channel.max_concurrency:
        return f"its channel {channel.name} runs all that it may: {channel.running} of {channel.max_concurrency}"
    if channel.release_at is not None and to_epoch_ms(channel.release_at) > to_epoch_ms(now):
        return f"its channel {channel.name} lets the next one begin at {_time(to_epoch_ms(channel.release_at))}"
    return None


def _time(epoch_ms: int) -> str:
    return EpochDateTime.from_ms(epoch_ms).isoformat(" ", "seconds")


def _rounded(wait_ms: int) -> dt.timedelta:
    return dt.timedelta(seconds=round(min(wait_ms / 1000, 1e12)))
