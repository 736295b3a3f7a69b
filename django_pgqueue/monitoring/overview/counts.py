"""Counts waiting, running and failed messages of each queue, up to a limit."""

from __future__ import annotations

import datetime as dt
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

from django_pgqueue.monitoring.overview import formatting, queries
from django_pgqueue.values.times import to_epoch_ms

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

MOST = 10_000
"""Counting stops here in one queue."""
ALTOGETHER = 200_000
"""Counting stops here in all queues together: with many queues, each has a lower limit."""
QUEUES = 100
MAX_LANES = 1_000
DAY = dt.timedelta(days=1)
OUT_OF_REACH_MS, PARKED_MS = 2**63 - 1, 2**63 - 2

# Lanes that a dequeue has seen, and lanes of messages that came since then: a probe for each.
LANES = """
with recursive fresh as (
    (select a.channel, a.queue, a.raw from pgqueue_arrival a order by a.channel, a.queue, a.raw limit 1)
    union all
    select n.channel, n.queue, n.raw from fresh f cross join lateral (
        select a.channel, a.queue, a.raw from pgqueue_arrival a
        where (a.channel, a.queue, a.raw) > (f.channel, f.queue, f.raw)
        order by a.channel, a.queue, a.raw limit 1) as n
)
(select l.channel, l.queue, l.raw from pgqueue_lane l order by l.channel, l.queue, l.raw limit %(lanes)s)
union
(select f.channel, f.queue, f.raw from fresh f limit %(lanes)s)
"""

# The planner turns (task is null) = <constant> into "task is not null", which is no key of the index: hence the lanes.
COUNTS = """
with recursive asked as materialized (
    select q.queue, l.raw from unnest(%(names)s::text[]) as q (queue) cross join (values (false), (true)) as l (raw)
),
line as materialized (
    select a.queue, a.raw, l.p_priority as priority from pgqueue_message_levels() as l join asked a on a.raw = l.p_raw
),
scheduled as (
    select a.queue, a.raw, h.priority, h.dequeue_at, h.created_at
    from asked a cross join lateral (
        select m.priority, m.dequeue_at, m.created_at from pgqueue_message m
        where m.queue = a.queue and (m.task is null) = a.raw and m.unlock_at is null and not m.in_line
          and m.channel is null
        order by m.priority desc, m.dequeue_at, m.id limit 1) as h
    union all
    select p.queue, p.raw, h.priority, h.dequeue_at, h.created_at
    from scheduled p cross join lateral (
        select m.priority, m.dequeue_at, m.created_at from pgqueue_message m
        where m.queue = p.queue and (m.task is null) = p.raw and m.unlock_at is null and not m.in_line
          and m.channel is null and m.priority < p.priority
        order by m.priority desc, m.dequeue_at, m.id limit 1) as h
),
head as materialized (
    select l.queue, l.raw, l.priority, true as in_line, h.dequeue_at, h.created_at
    from line l cross join lateral (
        select m.dequeue_at, m.created_at from pgqueue_message m
        where (m.task is null) = l.raw and m.unlock_at is null and m.in_line and m.channel is null
          and m.priority = l.priority and m.queue = l.queue
        order by m.dequeue_at, m.id limit 1) as h
    union all
    select s.queue, s.raw, s.priority, false, s.dequeue_at, s.created_at from scheduled s
)
select q.queue, {ready}, {scheduled}, {after_others},
    (select min(greatest(h.dequeue_at, floor(extract(epoch from h.created_at) * 1000)::bigint))
     from head h where h.queue = q.queue and h.dequeue_at <= %(now)s and isfinite(h.created_at)),
    (select bool_or(not h.raw and h.dequeue_at <= %(now)s) from head h where h.queue = q.queue)
from unnest(%(names)s::text[]) as q (queue)
"""
OF_A_KIND = """
    (select count(*) from (
        select from head h cross join lateral (
            (select from pgqueue_message m
             where h.in_line and (m.task is null) = h.raw and m.unlock_at is null and m.in_line and m.channel is null
               and m.priority = h.priority and m.queue = h.queue and {when} limit %(most)s)
            union all
            (select from pgqueue_message m
             where not h.in_line and m.queue = h.queue and (m.task is null) = h.raw and m.unlock_at is null
               and not m.in_line and m.channel is null and m.priority = h.priority and {when} limit %(most)s)) as d
        where h.queue = q.queue limit %(most)s) as c)"""
COUNTS = COUNTS.format(
    ready=OF_A_KIND.format(when="m.dequeue_at <= %(now)s"),
    scheduled=OF_A_KIND.format(when="m.dequeue_at > %(now)s and m.dequeue_at < %(parked)s"),
    after_others=OF_A_KIND.format(when="m.dequeue_at = %(out_of_reach)s"),
)

# The same for the lanes of channels; each lane is counted separately.
IN_LANES = """
with recursive asked as materialized (
    select u.channel, u.queue, u.raw
    from unnest(%(channels)s::text[], %(names)s::text[], %(raws)s::boolean[]) as u (channel, queue, raw)
),
head as (
    select a.channel, a.queue, a.raw, h.priority, h.dequeue_at, h.created_at
    from asked a cross join lateral (
        select m.priority, m.dequeue_at, m.created_at from pgqueue_message m
        where m.channel = a.channel and m.queue = a.queue and (m.task is null) = a.raw and m.unlock_at is null
          and m.channel is not null
        order by m.priority desc, m.dequeue_at, m.id limit 1) as h
    union all
    select p.channel, p.queue, p.raw, h.priority, h.dequeue_at, h.created_at
    from head p cross join lateral (
        select m.priority, m.dequeue_at, m.created_at from pgqueue_message m
        where m.channel = p.channel and m.queue = p.queue and (m.task is null) = p.raw and m.unlock_at is null
          and m.channel is not null and m.priority < p.priority
        order by m.priority desc, m.dequeue_at, m.id limit 1) as h
)
select h.queue, ready.count, scheduled.count, after_others.count,
       case when h.dequeue_at <= %(now)s and isfinite(h.created_at)
            then greatest(h.dequeue_at, floor(extract(epoch from h.created_at) * 1000)::bigint) end,
       not h.raw and h.dequeue_at <= %(now)s
from head h
cross join lateral (select count(*) from (
    select from pgqueue_message m
    where m.channel = h.channel and m.queue = h.queue and (m.task is null) = h.raw and m.unlock_at is null
      and m.channel is not null and m.priority = h.priority and m.dequeue_at <= %(now)s limit %(most)s) as c) as ready
cross join lateral (select count(*) from (
    select from pgqueue_message m
    where m.channel = h.channel and m.queue = h.queue and (m.task is null) = h.raw and m.unlock_at is null
      and m.channel is not null and m.priority = h.priority
      and m.dequeue_at > %(now)s and m.dequeue_at < %(parked)s limit %(most)s) as c) as scheduled
cross join lateral (select count(*) from (
    select from pgqueue_message m
    where m.channel = h.channel and m.queue = h.queue and (m.task is null) = h.raw and m.unlock_at is null
      and m.channel is not null and m.priority = h.priority and m.dequeue_at = %(out_of_reach)s limit %(most)s) as c
) as after_others
"""

HELD = """
select h.queue, count(*) filter (where h.unlock_at > %(now)s), count(*) filter (where h.unlock_at <= %(now)s)
from (
    select m.queue, m.unlock_at from pgqueue_message m where m.unlock_at is not null order by m.unlock_at limit %(most)s
) as h
group by h.queue
"""

# The statuses are those of the partial index.  The range is whole days, so a scan of partitions skips no row.
FAILED = """
select e.queue, count(*) filter (where e.status = 'failed' and e.finished_at > %(since)s), count(*),
       bool_and(e.finished_at > %(since)s)
from (
    select a.queue, a.status, a.finished_at from pgqueue_attempt a
    where a.status in ('failed', 'retried', 'lost') and a.finished_at >= %(day)s and a.finished_at < %(end)s
    order by a.id desc limit %(most)s
) as e
group by e.queue
"""


@dataclass(frozen=True, slots=True)
class Capped:
    """A count, or "at least so many"."""

    value: int
    is_capped: bool = False

    def __str__(self) -> str:
        """
        >>> str(Capped(12)), str(Capped(10_000, True))
        ('12', '10\xa0000+')
        """
        return f"{formatting.number(self.value)}{'+' if self.is_capped else ''}"

    def __bool__(self) -> bool:
        return self.value > 0

    @classmethod
    def of(cls, count: int, most: int) -> Capped:
        return cls(min(count, most), count > most)

    def plus(self, other: Capped) -> Capped:
        return Capped(min(self.value + other.value, MOST), self.is_capped or other.is_capped)


NONE = Capped(0)


class WaitingLane(NamedTuple):
    """A channel's messages of one kind in one queue."""

    channel: str
    queue: str
    raw: bool


@dataclass(slots=True, kw_only=True)
class Count:
    """Counts of one queue."""

    ready: Capped = NONE
    scheduled: Capped = NONE
    after_others: Capped = NONE
    oldest: dt.timedelta | None = None
    tasks_are_ready: bool = False
    running: Capped = NONE
    expired: Capped = NONE
    failed: Capped = NONE


def waiting_queues(*, using: str) -> list[str]:
    """Returns the queues with waiting messages: one more than are shown, if there are more."""
    rows = queries.rows("select pgqueue_message_queues(%(queues)s)", {"queues": QUEUES + 1}, using=using)
    return [row[0] for row in rows]


def lanes(*, using: str) -> list[WaitingLane]:
    """Returns the lanes that exist or will exist, up to MAX_LANES, and one more if there are more."""
    rows = queries.rows(LANES, {"lanes": MAX_LANES + 1}, using=using)
    return [WaitingLane(*row) for row in rows[: MAX_LANES + 1]]


def of(
    names: Iterable[str],
    now: dt.datetime,
    held: dict[str, tuple[Capped, Capped]],
    failed: dict[str, Capped],
    lanes: Sequence[WaitingLane] = (),
    *,
    using: str,
) -> dict[str, Count]:
    found = {name: Count() for name in names}
    most = min(MOST, ALTOGETHER // (2 * max(1, len(found))))
    now_ms = to_epoch_ms(now)
    asked: dict[str, Any] = {
        "names": list(found), "now": now_ms, "most": most + 1, "out_of_reach": OUT_OF_REACH_MS,
        "parked": PARKED_MS,
    }  # fmt: skip
    for name, ready, scheduled, after_others, oldest_ms, tasks_are_ready in queries.rows(COUNTS, asked, using=using):
        count = found[name]
        count.ready = Capped.of(ready, most)
        count.scheduled = Capped.of(scheduled, most)
        count.after_others = Capped.of(after_others, most)
        count.oldest = None if oldest_ms is None else dt.timedelta(milliseconds=max(0, now_ms - oldest_ms))
        count.tasks_are_ready = bool(tasks_are_ready)
    _add_lanes(found, lanes[:MAX_LANES], now_ms, using=using)
    if len(lanes) > MAX_LANES:  # the other lanes were not counted
        for name in {lane.queue for lane in lanes} & set(found):
            found[name].ready = Capped(found[name].ready.value, is_capped=True)
    for name, count in found.items():
        count.running, count.expired = held.get(name, (NONE, NONE))
        count.failed = failed.get(name, NONE)
    return found


def _add_lanes(found: dict[str, Count], lanes: Sequence[WaitingLane], now_ms: int, *, using: str) -> None:
    here = [lane for lane in lanes if lane.queue in found]
    if not here:
        return
    most = max(10, min(MOST, ALTOGETHER // (2 * len(here))))
    asked: dict[str, Any] = {
        "channels": [lane.channel for lane in here],
        "names": [lane.queue for lane in here],
        "raws": [lane.raw for lane in here],
        "now": now_ms,
        "most": most + 1,
        "out_of_reach": OUT_OF_REACH_MS,
        "parked": PARKED_MS,
    }
    for name, ready, scheduled, after_others, oldest_ms, tasks_are_ready in queries.rows(IN_LANES, asked, using=using):
        count = found[name]
        count.ready = count.ready.plus(Capped.of(ready, most))
        count.scheduled = count.scheduled.plus(Capped.of(scheduled, most))
        count.after_others = count.after_others.plus(Capped.of(after_others, most))
        if oldest_ms is not None:
            age = dt.timedelta(milliseconds=max(0, now_ms - oldest_ms))
            count.oldest = age if count.oldest is None else max(count.oldest, age)
        count.tasks_are_ready = count.tasks_are_ready or bool(tasks_are_ready)


def held(now: dt.datetime, *, using: str) -> dict[str, tuple[Capped, Capped]]:
    """Counts running and expired messages by queue."""
    rows = queries.rows(HELD, {"now": to_epoch_ms(now), "most": MOST + 1}, using=using)
    capped = sum(running + expired for _, running, expired in rows) > MOST
    return {queue: (Capped(running, capped), Capped(expired)) for queue, running, expired in rows}


def failed(now: dt.datetime, *, using: str, within: dt.timedelta = DAY) -> dict[str, Capped]:
    """Counts failed messages of the last 24 hours, or of a shorter ``within``, by queue, among the newest errors."""
    midnight = now.astimezone(dt.UTC).replace(hour=0, minute=0, second=0, microsecond=0)
    asked = {"since": now - within, "day": midnight - DAY, "end": midnight + 2 * DAY, "most": MOST + 1}
    rows = queries.rows(FAILED, asked, using=using)
    looked = sum(row[2] for row in rows)
    capped = looked > MOST and all(row[3] for row in rows)
    return {queue: Capped(failures, capped) for queue, failures, _, _ in rows}
