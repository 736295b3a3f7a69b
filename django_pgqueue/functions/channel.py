"""Channels: their limits, their counts, and why they refuse a message."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from django_pgqueue.exceptions import ChannelFull, ChannelReleased
from django_pgqueue.functions.connection import may_read

if TYPE_CHECKING:
    from django_pgqueue.functions.connection import Connection


class Recount(NamedTuple):
    """Count that ``channel_repair`` has corrected."""

    channel: str
    before: int
    after: int


def channel_set(
    connection: Connection,
    name: str,
    *,
    max_concurrency: int | None = None,
    max_size: int | None = None,
    release_interval_ms: int | None = None,
) -> None:
    with connection.cursor() as cursor:
        cursor.execute(
            "select pgqueue_channel_set(%s, %s, %s, %s)", (name, max_concurrency, max_size, release_interval_ms)
        )


def channel_release(connection: Connection, name: str) -> bool | None:
    """Releases a channel.  True: it is deleted.  False: it still has messages.  None: there is none."""
    with connection.cursor() as cursor:
        cursor.execute("select pgqueue_channel_release(%s)", (name,))
        answer: bool | None = cursor.fetchone()[0]
        return answer


def channel_repair(connection: Connection, name: str | None = None) -> list[Recount]:
    with connection.cursor() as cursor:
        cursor.execute("select p_channel, p_before, p_after from pgqueue_channel_repair(%s)", (name,))
        return [Recount(*row) for row in cursor.fetchall()]


# One statement sees one moment, in which an attempt is either locked or its end is noted in pgqueue_arrival.
MISCOUNTED = """
with locked as (
    select m.channel, count(*) as count from pgqueue_message m
    where m.unlock_at is not null and m.channel is not null group by m.channel
),
ended as (
    select a.channel, sum(a.ended) as count from pgqueue_arrival a where a.ended <> 0 group by a.channel
)
select coalesce(c.name, l.channel), coalesce(c.running, 0), coalesce(l.count, 0) + coalesce(e.count, 0)
from pgqueue_channel c
full join locked l on l.channel = c.name
left join ended e on e.channel = coalesce(c.name, l.channel)
where coalesce(c.running, 0) <> coalesce(l.count, 0) + coalesce(e.count, 0)
order by 1
limit %s
"""


def channels_miscounted(connection: Connection, *, limit: int) -> list[tuple[str, int, int]]:
    """Returns (channel, messages counted as running, messages that run) where they differ, as in a restored table."""
    with connection.cursor() as cursor:
        cursor.execute(MISCOUNTED, (limit,))
        return [(name, int(running), int(there)) for name, running, there in cursor.fetchall()]


LANES = """
with recursive lane as (
    (select m.channel, m.queue from pgqueue_message m where m.unlock_at is null and m.channel is not null
     order by m.channel, m.queue limit 1)
    union all
    select n.channel, n.queue from lane l cross join lateral (
        select m.channel, m.queue from pgqueue_message m
        where m.unlock_at is null and m.channel is not null and (m.channel, m.queue) > (l.channel, l.queue)
        order by m.channel, m.queue limit 1) as n
)"""
"""The lanes that have messages: an index probe for each, however many messages it has."""
# The first of a lane that is due at some time: the lane has its turn then, or an arrival tells of it.  The turns of a
# busy lane are set by the clocks of dequeues, which may be a little ahead of this statement's: where a channel's is
# further ahead, the clock has been put back since.
UNSEEN = f"""{LANES}
select p.channel
from lane p
cross join (values (false), (true)) as r (raw)
cross join lateral (
    with recursive head as (
        (select m.priority::integer, m.dequeue_at from pgqueue_message m
         where m.channel = p.channel and m.queue = p.queue and (m.task is null) = r.raw and m.unlock_at is null
         order by m.priority desc, m.dequeue_at, m.id limit 1)
        union all
        (select n.priority, n.dequeue_at from head h cross join lateral (
            select m.priority::integer, m.dequeue_at from pgqueue_message m
            where m.channel = p.channel and m.queue = p.queue and (m.task is null) = r.raw and m.unlock_at is null
              and m.priority < h.priority
            order by m.priority desc, m.dequeue_at, m.id limit 1) as n)
    )
    select min(h.dequeue_at) as dequeue_at from head h
) as first
where first.dequeue_at < 9223372036854775806
  and (select true from pgqueue_lane l
       where l.channel = p.channel and l.queue = p.queue and l.raw = r.raw
         and (select true from pgqueue_channel c where c.name = l.channel)
         and (l.parked or l.next_at - 60000 <= greatest(first.dequeue_at, pgqueue_now(), (
             select c.release_at from pgqueue_channel c where c.name = p.channel)))) is null
  and (select true from pgqueue_arrival a
       where a.channel = p.channel and a.queue = p.queue and a.raw = r.raw and a.dequeue_at is not null
       order by a.id limit 1) is null
union
select c.name from pgqueue_channel c where c.release_at - 60000 > pgqueue_now() + c.release_interval_ms
order by 1
limit %s
"""  # noqa: S608 -- a constant


def channels_unseen(connection: Connection, *, limit: int) -> list[str]:
    """Returns the channels with messages that no dequeue looks at, as after an enqueue that ran no triggers, or that
    wait longer than their interval, as after a clock that was ahead.
    """
    with connection.cursor() as cursor:
        cursor.execute(UNSEEN, (limit,))
        return [name for (name,) in cursor.fetchall()]


def channel_prune(connection: Connection) -> int:
    with connection.cursor() as cursor:
        cursor.execute("select pgqueue_channel_prune()")
        return int(cursor.fetchone()[0])


def refusal(connection: Connection, channel: str | None, what: str = "The message") -> ChannelFull | ChannelReleased:
    """Returns why a channel refused a message, as an exception.  Nothing was written, and no transaction is broken."""
    max_size, released = _limit(connection, channel)
    if released:
        message = (
            f"{what} was not enqueued: channel {channel!r} was released and takes no new messages. Call "
            "control.set_channel() to use it again."
        )
        return ChannelReleased(message, channel=channel)
    limit = "" if max_size is None else f": its max_size is {max_size:,}"
    message = (
        f"{what} was not enqueued: channel {channel!r} is full{limit}. Try again when some of its messages have been "
        "dequeued, or raise the limit with control.set_channel()."
    )
    return ChannelFull(message, channel=channel)


def _limit(connection: Connection, channel: str | None) -> tuple[int | None, bool]:
    if not may_read(connection, "pgqueue_channel"):
        return None, False
    with connection.cursor() as cursor:
        cursor.execute("select max_size, released_at is not null from pgqueue_channel where name = %s", (channel,))
        return cursor.fetchone() or (None, False)
