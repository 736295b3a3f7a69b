"""Why a message does not run yet, and how long that may take."""

from __future__ import annotations

import datetime as dt
from typing import TYPE_CHECKING, Any, NamedTuple

from django.utils.html import format_html, format_html_join

from django_pgqueue.admin.parts import display, queries
from django_pgqueue.admin.parts.database import alias, url
from django_pgqueue.admin.parts.status import Status, status_of
from django_pgqueue.models.tables import Message, QueueState
from django_pgqueue.monitoring.overview.clamped import Moment
from django_pgqueue.values.times import to_epoch_ms

if TYPE_CHECKING:
    from collections.abc import Iterator

    from django.utils.safestring import SafeString

    from django_pgqueue.monitoring.overview.coverage import Service

FURTHEST = 10_000
"""Nobody counts further than that."""
NEWEST = 1_000
RECENT = dt.timedelta(minutes=10)
OTHERS_NAMED = 10
# Where message_create_after puts what waits for others.
OUT_OF_REACH_MS = 2**63 - 1

# (task is null) = <constant> would become "task is not null", which is no key of the index: hence the lane.
AHEAD = """
with recursive lane as materialized (select %(raw)s::boolean as raw),
line as materialized (
    select p.p_priority as priority from lane l cross join pgqueue_message_levels() as p
    where p.p_raw = l.raw and p.p_priority >= %(priority)s
),
scheduled as (
    (select m.priority from lane l cross join lateral (
        select p.priority from pgqueue_message p
        where p.queue = %(queue)s and (p.task is null) = l.raw and p.unlock_at is null and not p.in_line
          and p.channel is null and p.priority >= %(priority)s
        order by p.priority desc limit 1) as m)
    union all
    select n.priority from scheduled h cross join lane l cross join lateral (
        select p.priority from pgqueue_message p
        where p.queue = %(queue)s and (p.task is null) = l.raw and p.unlock_at is null and not p.in_line
          and p.channel is null and p.priority < h.priority and p.priority >= %(priority)s
        order by p.priority desc limit 1) as n
)
select count(*) from (
    select 1 from line h cross join lane l cross join lateral (
        select from pgqueue_message m
        where (m.task is null) = l.raw and m.unlock_at is null and m.in_line and m.channel is null
          and m.priority = h.priority and m.queue = %(queue)s and m.dequeue_at <= %(now)s
          and (h.priority > %(priority)s
               or (m.dequeue_at, m.id) < (cast(%(dequeue_at)s as bigint), cast(%(id)s as bigint)))
        limit %(most)s) as in_line
    union all
    select 1 from scheduled h cross join lane l cross join lateral (
        select from pgqueue_message m
        where m.queue = %(queue)s and (m.task is null) = l.raw and m.unlock_at is null and not m.in_line
          and m.channel is null and m.priority = h.priority and m.dequeue_at <= %(now)s
          and (h.priority > %(priority)s
               or (m.dequeue_at, m.id) < (cast(%(dequeue_at)s as bigint), cast(%(id)s as bigint)))
        limit %(most)s) as due
    limit %(most)s
) as ahead
"""

# In the lane of a channel, whose index begins with the channel.
AHEAD_IN_CHANNEL = """
with recursive lane as materialized (select %(raw)s::boolean as raw),
present as (
    (select m.priority from lane l cross join lateral (
        select p.priority from pgqueue_message p
        where p.queue = %(queue)s and (p.task is null) = l.raw and p.unlock_at is null
          and p.channel = %(channel)s and p.channel is not null
          and p.priority > %(priority)s
        order by p.priority desc limit 1) as m)
    union all
    select n.priority from present h cross join lane l cross join lateral (
        select p.priority from pgqueue_message p
        where p.queue = %(queue)s and (p.task is null) = l.raw and p.unlock_at is null
          and p.channel = %(channel)s and p.channel is not null
          and p.priority < h.priority and p.priority > %(priority)s
        order by p.priority desc limit 1) as n
)
select count(*) from (
    select 1 from present h cross join lane l cross join lateral (
        select from pgqueue_message m
        where m.queue = %(queue)s and (m.task is null) = l.raw and m.unlock_at is null
          and m.channel = %(channel)s and m.channel is not null
          and m.priority = h.priority and m.dequeue_at <= %(now)s
        limit %(most)s) as due
    union all
    select 1 from lane l cross join lateral (
        select from pgqueue_message m
        where m.queue = %(queue)s and (m.task is null) = l.raw and m.unlock_at is null
          and m.channel = %(channel)s and m.channel is not null
          and m.priority = %(priority)s
          and (m.dequeue_at, m.id) < (cast(%(dequeue_at)s as bigint), cast(%(id)s as bigint))
        limit %(most)s) as same
    limit %(most)s
) as ahead
"""

ENDED = """
select count(*), min(newest.finished_at)
from (
    select a.queue, a.channel, a.task, a.status, a.finished_at from pgqueue_attempt a
    order by a.id desc limit %(newest)s
) as newest
where newest.queue = %(queue)s and (newest.task is null) = %(raw)s and newest.status <> 'cancelled'
  and newest.finished_at > %(since)s and newest.channel is not distinct from %(channel)s
"""

RUNNING = """
select greatest(0, c.running - (
           select coalesce(sum(e.ended), 0) from (
               select a.ended from pgqueue_arrival a where a.channel = c.name limit %(most)s) as e)),
       c.max_concurrency, c.release_at, c.release_interval_ms
from pgqueue_channel c where c.name = %(channel)s
"""


class Rate(NamedTuple):
    """How many messages of a queue have ended lately, and in what time."""

    ended: int
    seconds: float

    def words(self, ahead: int) -> str:
        """
        >>> Rate(100, 50.0).words(80)
        'about 40 s at the present rate'
        """
        if not self.ended:
            return "nobody can say how long: nothing of this queue has ended in the last 10 minutes"
        return f"about {display.span(dt.timedelta(seconds=ahead * self.seconds / self.ended))} at the present rate"


def reasons(message: Message, now: dt.datetime, service: Service) -> Iterator[SafeString | str]:
    """Sentences, the most important first.  None for a message that runs."""
    status = status_of(message.dequeue_at, message.unlock_at, now)
    if status is Status.RUNNING:
        return
    if status is Status.EXPIRED:
        yield format_html(
            "Its worker, {}, has gone away. The next worker that looks takes it over.", message.worker or "-"
        )
    elif message.after_ids:
        yield _others(message)
    elif message.alone_at is not None:
        yield _quarantined(message, message.alone_at, now)
    elif status is Status.SCHEDULED:
        yield _when(message, now)
    yield from paused(message.queue)
    yield from channel(message, now)
    if service.lacks(message):
        yield no_worker(message)
    if status is Status.READY:
        yield _place(message, now)


def _others(message: Message) -> SafeString:
    ids = list(message.after_ids or ())
    there = Message.objects.using(alias()).filter(pk__in=ids).order_by("pk")
    left = list(there.values_list("pk", flat=True)[: OTHERS_NAMED + 1])
    if not left:
        return format_html("All {} jobs that it waits for have ended. A worker will see that soon.", len(ids))
    links = format_html_join(
        ", ", '<a href="{}">{}</a>', ((url("message_change", pk), str(pk)) for pk in left[:OTHERS_NAMED])
    )
    return format_html(
        "It waits for {} of which {}{} {} not ended yet.",
        "1 job," if len(ids) == 1 else f"{display.number(len(ids))} jobs,",
        links,
        " and more" if len(left) > OTHERS_NAMED else "",
        "has" if len(left) == 1 else "have",
    )


def _quarantined(message: Message, alone_at: dt.datetime, now: dt.datetime) -> SafeString:
    due = to_epoch_ms(alone_at) <= to_epoch_ms(now)
    return format_html(
        "It is quarantined: {} while it ran. A worker takes it alone{}, so that it harms no other job.",
        "its worker died" if message.lost == 1 else f"its last {message.lost} workers died",
        "" if due else format_html(" at {}", display.moment(alone_at)),
    )


def _when(message: Message, now: dt.datetime) -> SafeString:
    far = display.relative(message.dequeue_at, now)
    retry = message.attempt > 0 and message.last_error
    return format_html(
        "{} {}{}.",
        f"It waits for its retry: attempt {message.attempt} ended with an error. The next one is due at"
        if retry
        else "It is scheduled for",
        display.moment(message.dequeue_at),
        f", {far}" if far else "",
    )


def paused(queue: str) -> Iterator[SafeString]:
    """Since when and by whom, if the queue is paused."""
    states = QueueState.objects.using(alias()).filter(pk=queue, paused_at__isnull=False)
    for since, by in states.values_list(Moment("paused_at"), "paused_by"):
        yield format_html("Queue {} is paused since {} by {}.", queue, display.moment(since), by or "somebody")


def channel(message: Message, now: dt.datetime) -> Iterator[str]:
    """Where the channel of a message has no room for it, or waits itself."""
    if message.channel is None:
        return
    for running, most, release_at, interval_ms in queries.rows(RUNNING, {"channel": message.channel, "most": FURTHEST}):
        if most == 0:
            yield f"Channel {message.channel} stands still: none of its messages may run."
        elif most is not None and running >= most:
            yield f"It waits for channel {message.channel}: {running} of {most} running."
        if release_at is not None and release_at > to_epoch_ms(now):
            wait = display.span(dt.timedelta(milliseconds=release_at - to_epoch_ms(now)))
            interval = display.span(dt.timedelta(milliseconds=interval_ms or 0))
            yield f"Channel {message.channel} begins one message every {interval}: the next one in {wait}."


def no_worker(message: Message) -> str:
    return (
        f"No worker that serves the queue “{message.queue}” has been seen in the last minute. "
        f"Start one: manage.py qworker --queues {message.queue}"
    )


def _place(message: Message, now: dt.datetime) -> str:
    place = ahead(message, now) + 1
    most = place > FURTHEST
    shown = f"{display.number(FURTHEST)}+" if most else display.number(place)
    how_long = "" if most else f", {rate(message, now).words(place)}"
    where = f"queue {message.queue}" if message.channel is None else f"channel {message.channel}"
    return f"It is ready: position {shown} of {where}{how_long}."


def ahead(message: Message, now: dt.datetime) -> int:
    """How many ready messages of its queue go first, counted up to FURTHEST."""
    return int(
        queries.rows(
            AHEAD if message.channel is None else AHEAD_IN_CHANNEL,
            {
                "queue": message.queue,
                "channel": message.channel,
                "raw": message.task is None,
                "priority": message.priority,
                "dequeue_at": to_epoch_ms(message.dequeue_at),
                "id": message.pk,
                "now": to_epoch_ms(now),
                "most": FURTHEST,
            },
        )[0][0]
    )


def rate(message: Message, now: dt.datetime) -> Rate:
    """By the newest attempts of all queues, as far as they ended in the last minutes."""
    asked: dict[str, Any] = {
        "queue": message.queue,
        "channel": message.channel,
        "raw": message.task is None,
        "newest": NEWEST,
        "since": now - RECENT,
    }
    [(ended, first)] = queries.rows(ENDED, asked)
    return Rate(ended, max(1.0, (now - first).total_seconds()) if first else 0.0)
