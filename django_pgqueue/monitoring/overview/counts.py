"""Counts of each queue, the same for everybody who shows them.

A census has the numbers of all queues.  Where it was a sample, indexes count on from there: what they can count up to a
limit is exact, and of the rest they know the least that it can be.
"""

from __future__ import annotations

import datetime as dt
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NamedTuple

from django_pgqueue.monitoring.overview import census, queries
from django_pgqueue.monitoring.overview.figure import NONE, Figure
from django_pgqueue.values.times import OUT_OF_REACH_MS, PARKED_MS, to_epoch_ms

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from django_pgqueue.monitoring.overview.census import Census

MAX_PROBED = 10_000
"""Beside a sample, an index counts up to here in one queue."""
ALTOGETHER = 30_000
"""And up to here in all queues together: with many queues, each has a lower limit."""
QUEUES = 100
MAX_LANES = 1_000
WAITING = ("ready", "scheduled", "after_others")

# A probe for each lane.  Not pgqueue_lane: it has no lanes whose messages all wait for others.
LANES = """
with recursive lane as (
    (select m.channel, m.queue, (m.task is null) as raw from pgqueue_message m
     where m.unlock_at is null and m.channel is not null
     order by m.channel, m.queue, (m.task is null) limit 1)
    union all
    select n.channel, n.queue, n.raw from lane l cross join lateral (
        select m.channel, m.queue, (m.task is null) as raw from pgqueue_message m
        where m.unlock_at is null and m.channel is not null
          and (m.channel, m.queue, (m.task is null)) > (l.channel, l.queue, l.raw)
        order by m.channel, m.queue, (m.task is null) limit 1) as n
)
select l.channel, l.queue, l.raw from lane l limit %(lanes)s
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
from unnest(%(names)s::text[], %(ready)s::integer[], %(scheduled)s::integer[], %(after_others)s::integer[])
     as q (queue, ready, scheduled, after_others)
"""
# A limit of 0: nothing is read.  The order leads to the index that has the queue: pgqueue_message_due_ix does not.
OF_A_KIND = """
    (select count(*) from (
        select from head h cross join lateral (
            (select from pgqueue_message m
             where h.in_line and (m.task is null) = h.raw and m.unlock_at is null and m.in_line and m.channel is null
               and m.priority = h.priority and m.queue = h.queue and {when}
             order by m.dequeue_at, m.id limit q.{state})
            union all
            (select from pgqueue_message m
             where not h.in_line and m.queue = h.queue and (m.task is null) = h.raw and m.unlock_at is null
               and not m.in_line and m.channel is null and m.priority = h.priority and {when}
             order by m.dequeue_at, m.id limit q.{state})) as d
        where h.queue = q.queue limit q.{state}) as c)"""
COUNTS = COUNTS.format(
    ready=OF_A_KIND.format(state="ready", when="m.dequeue_at <= %(now)s"),
    scheduled=OF_A_KIND.format(state="scheduled", when="m.dequeue_at > %(now)s and m.dequeue_at < %(parked)s"),
    after_others=OF_A_KIND.format(state="after_others", when="m.dequeue_at = %(out_of_reach)s"),
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


class WaitingLane(NamedTuple):
    """A channel's messages of one kind in one queue."""

    channel: str
    queue: str
    raw: bool


@dataclass(slots=True, kw_only=True)
class Count:
    """Counts of one queue."""

    ready: Figure = NONE
    scheduled: Figure = NONE
    after_others: Figure = NONE
    oldest: dt.timedelta | None = None
    tasks_are_ready: bool = False
    running: Figure = NONE
    expired: Figure = NONE


@dataclass(frozen=True, slots=True, kw_only=True)
class Look:
    """First facts about all queues, before some of them are counted."""

    now_ms: int
    census: Census
    lanes: Sequence[WaitingLane]
    """Those with waiting messages, up to MAX_LANES, and one more if there are more."""
    held: dict[str, tuple[Figure, Figure]]
    """Running and expired messages, where the census was a sample."""
    held_elsewhere: tuple[Figure, Figure]
    """Those of a queue that is not among them."""
    names: set[str]
    """Queues that have messages."""
    more: bool
    """Whether other queues may have messages, too."""

    def chosen(self, names: Iterable[str], first: Iterable[str] = ()) -> list[str]:
        """Returns up to QUEUES names, in their order: those with expired messages, the ``first``, and the largest."""
        first = set(first)

        def place(name: str) -> tuple[Any, ...]:
            states = self.census.queues.get(name, census.NOBODY)
            _, expired = self.held.get(name, self.held_elsewhere)
            active = states.ready + states.running + states.expired
            return not (states.expired or expired), name not in first, -active, -states.scheduled, name

        return sorted(sorted(names, key=place)[:QUEUES])


@dataclass(slots=True)
class Probed:
    """Messages in one state that the indexes have counted."""

    found: int = 0
    is_all: bool = True

    def add(self, found: int, limit: int) -> None:
        """``limit``: where counting would have stopped."""
        self.found += found
        self.is_all = self.is_all and found < limit

    def figure(self, estimate: float) -> Figure:
        return Figure(self.found) if self.is_all else Figure.about(estimate, at_least=self.found)


@dataclass(slots=True)
class Probes:
    ready: Probed = field(default_factory=Probed)
    scheduled: Probed = field(default_factory=Probed)
    after_others: Probed = field(default_factory=Probed)


def taken(now: dt.datetime, *, wanted: Iterable[str] = (), using: str) -> Look:
    """Looks at all queues, and at the ``wanted`` in any case."""
    now_ms = to_epoch_ms(now)
    counted = census.taken(now, wanted=wanted, using=using)
    lanes = _lanes(using=using)
    if counted.is_exact:
        return Look(
            now_ms=now_ms, census=counted, lanes=lanes, held={}, held_elsewhere=(NONE, NONE),
            names=set(counted.queues), more=not counted.is_whole,
        )  # fmt: skip
    held, elsewhere = _held(now_ms, counted, using=using)
    waiting = _waiting_queues(using=using)
    return Look(
        now_ms=now_ms,
        census=counted,
        lanes=lanes,
        held=held,
        held_elsewhere=elsewhere,
        names={*counted.queues, *held, *waiting, *(lane.queue for lane in lanes)},
        more=not counted.is_whole or len(waiting) > QUEUES,
    )


def _waiting_queues(*, using: str) -> list[str]:
    """Returns the queues with waiting messages: one more than are shown, if there are more."""
    rows = queries.rows("select pgqueue_message_queues(%(queues)s)", {"queues": QUEUES + 1}, using=using)
    return [row[0] for row in rows]


def _lanes(*, using: str) -> list[WaitingLane]:
    rows = queries.rows(LANES, {"lanes": MAX_LANES + 1}, using=using)
    return [WaitingLane(*row) for row in rows]


def _held(
    now_ms: int, counted: Census, *, using: str
) -> tuple[dict[str, tuple[Figure, Figure]], tuple[Figure, Figure]]:
    """Returns running and expired messages by queue, and those of any other queue.

    Locks are read in the order in which they end: expired ones come first.
    """
    rows = queries.rows(HELD, {"now": now_ms, "most": MAX_PROBED + 1}, using=using)
    if sum(running + expired for _, running, expired in rows) <= MAX_PROBED:
        return {queue: (Figure(running), Figure(expired)) for queue, running, expired in rows}, (NONE, NONE)
    seen = {queue: (running, expired) for queue, running, expired in rows}
    all_expired_seen = any(running for running, _ in seen.values())

    def figures(queue: str) -> tuple[Figure, Figure]:
        running, expired = seen.get(queue, (0, 0))
        return (
            Figure.about(counted.estimate(queue, "running"), at_least=running),
            Figure(expired) if all_expired_seen else Figure.about(counted.estimate(queue, "expired"), at_least=expired),
        )

    sampled = {queue for queue, states in counted.queues.items() if states.running or states.expired}
    return {queue: figures(queue) for queue in {*seen, *sampled}}, figures("")


def of(names: Iterable[str], look: Look, *, using: str) -> dict[str, Count]:
    found = {name: Count() for name in names}
    probes = {name: Probes() for name in found}
    limits = _limits(found, look.census)
    asked: dict[str, Any] = {
        "names": list(found),
        "now": look.now_ms,
        "out_of_reach": OUT_OF_REACH_MS,
        "parked": PARKED_MS,
        **{state: [limits[name, state] for name in found] for state in WAITING},
    }
    for name, *counted, oldest_ms, tasks_are_ready in queries.rows(COUNTS, asked, using=using):
        for state, number in zip(WAITING, counted, strict=True):
            getattr(probes[name], state).add(number, limits[name, state])
        _first(found[name], look.now_ms, oldest_ms, tasks_are_ready)
    _add_lanes(found, probes, look, using=using)
    for name, count in found.items():
        for state in WAITING:
            setattr(count, state, _figure(name, state, getattr(probes[name], state), look.census))
        if look.census.is_exact:
            states = look.census.queues.get(name, census.NOBODY)
            count.running, count.expired = Figure(states.running), Figure(states.expired)
        else:
            count.running, count.expired = look.held.get(name, look.held_elsewhere)
    return found


def _limits(names: Iterable[str], counted: Census) -> dict[tuple[str, str], int]:
    """Says how far an index counts the messages of a queue in a state: one more than is shown as exact."""
    unsure = {(name, state): not counted.is_sure(name, state) for name in names for state in WAITING}
    most = min(MAX_PROBED, ALTOGETHER // max(1, sum(unsure.values())))
    return {key: most + 1 if asked else 0 for key, asked in unsure.items()}


def _figure(name: str, state: str, probed: Probed, counted: Census) -> Figure:
    if counted.is_exact:
        return Figure(getattr(counted.queues.get(name, census.NOBODY), state))
    return probed.figure(counted.estimate(name, state))


def _first(count: Count, now_ms: int, oldest_ms: int | None, tasks_are_ready: bool | None) -> None:
    """Notes since when the first ready message has been ready."""
    if oldest_ms is not None:
        age = dt.timedelta(milliseconds=max(0, now_ms - oldest_ms))
        count.oldest = age if count.oldest is None else max(count.oldest, age)
    count.tasks_are_ready = count.tasks_are_ready or bool(tasks_are_ready)


def _add_lanes(found: dict[str, Count], probes: dict[str, Probes], look: Look, *, using: str) -> None:
    here = [lane for lane in look.lanes[:MAX_LANES] if lane.queue in found]
    most = 0 if look.census.is_exact else max(10, min(MAX_PROBED, ALTOGETHER // (3 * max(1, len(here)))))
    asked: dict[str, Any] = {
        "channels": [lane.channel for lane in here],
        "names": [lane.queue for lane in here],
        "raws": [lane.raw for lane in here],
        "now": look.now_ms,
        "most": most and most + 1,
        "out_of_reach": OUT_OF_REACH_MS,
        "parked": PARKED_MS,
    }
    for name, *counted, oldest_ms, tasks_are_ready in queries.rows(IN_LANES, asked, using=using) if here else ():
        for state, number in zip(WAITING, counted, strict=True):
            getattr(probes[name], state).add(number, most + 1)
        _first(found[name], look.now_ms, oldest_ms, tasks_are_ready)
    if len(look.lanes) > MAX_LANES:  # any queue may have the other lanes, which were not counted
        for each in probes.values():
            for state in WAITING:
                getattr(each, state).is_all = False
