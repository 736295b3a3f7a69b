"""Reasons why a message does not run.  Each is a value, with one sentence for every page and command."""

from __future__ import annotations

import datetime as dt
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

from django.utils.translation import gettext, ngettext

from django_pgqueue.monitoring.overview import Paused, counts, overview, queries
from django_pgqueue.monitoring.overview.capped import Capped
from django_pgqueue.monitoring.overview.coverage import Service
from django_pgqueue.monitoring.overview.formatting import Words, number, outside, relative, span
from django_pgqueue.values.times import EpochDateTime, aware, to_epoch_ms

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from django_pgqueue.models.tables import Message
    from django_pgqueue.monitoring.overview.counts import Count

MAX_POSITION = 10_000
"""Positions are counted up to here."""
MAX_ATTEMPTS = 1_000
"""The rate is computed from at most this many of the newest attempts."""
MAX_NAMED = 10
"""So many of the messages that a message waits for are named."""
RECENT = dt.timedelta(minutes=10)
NEVER_MS = 2**63 - 1
"""The time of a message that is out of reach."""


# For each priority down to the message's own: the messages before it, in its channel, or else in the line of its
# queue and among those that were scheduled there.
# The planner turns (task is null) = <constant> into "task is not null", which is no key of the index: hence the lane.
AHEAD = """
with recursive lane as materialized (select %(raw)s::boolean as raw),
line as materialized (
    select l.p_priority as priority from lane cross join pgqueue_message_levels() as l
    where l.p_raw = lane.raw and l.p_priority >= %(priority)s and %(channel)s::text is null
),
other as (
    (select m.priority from lane cross join lateral (
        select m.priority from pgqueue_message m
        where m.queue = %(queue)s and (m.task is null) = lane.raw and m.unlock_at is null and {others}
          and m.priority >= %(priority)s
        order by m.priority desc limit 1) as m)
    union all
    select m.priority from other h cross join lane cross join lateral (
        select m.priority from pgqueue_message m
        where m.queue = %(queue)s and (m.task is null) = lane.raw and m.unlock_at is null and {others}
          and m.priority < h.priority and m.priority >= %(priority)s
        order by m.priority desc limit 1) as m
)
select count(*) from (
    select from line h cross join lane cross join lateral (
        select from pgqueue_message m
        where (m.task is null) = lane.raw and m.unlock_at is null and m.in_line and m.channel is null
          and m.priority = h.priority and m.queue = %(queue)s and {before} limit %(most)s) as m
    union all
    select from other h cross join lane cross join lateral (
        select from pgqueue_message m
        where m.queue = %(queue)s and (m.task is null) = lane.raw and m.unlock_at is null and {others}
          and m.priority = h.priority and {before} limit %(most)s) as m
    limit %(most)s
) as ahead
"""
# One row comparison, which the index supports: an "or" would read all messages that are due.
BEFORE = f"""(m.dequeue_at, m.id) < (
            case when h.priority > %(priority)s then %(now)s else %(dequeue_at)s end::bigint,
            case when h.priority > %(priority)s then {2**63 - 1} else %(id)s end::bigint)"""
AHEAD_IN_QUEUE = AHEAD.format(others="not m.in_line and m.channel is null", before=BEFORE)
AHEAD_IN_CHANNEL = AHEAD.format(others="m.channel = %(channel)s and m.channel is not null", before=BEFORE)

ENDED = """
select count(*), min(newest.finished_at)
from (
    select a.queue, a.channel, a.task, a.status, a.finished_at from pgqueue_attempt a
    order by a.id desc limit %(newest)s
) as newest
where newest.queue = %(queue)s and (newest.task is null) = %(raw)s and newest.status <> 'cancelled'
  and newest.finished_at > %(since)s and newest.channel is not distinct from %(channel)s
"""

# Facts from other rows than the message's own.  The limits keep probes from becoming joins, which read whole tables
# that were analysed when they were empty.  Rows written by hand may have infinity, which no datetime can hold.
FACTS = """
select m.id, m.attempt > 0 and m.last_error <> '', cardinality(m.after_ids),
       array(select a.id from unnest(m.after_ids) as a (id)
             cross join lateral (select from pgqueue_message where id = a.id limit 1) as m limit %(named)s),
       case when q.name is not null
            then least(greatest(q.paused_at, '0001-01-02 00:00:00+00'), '9999-12-30 00:00:00+00') end, q.paused_by,
       greatest(0, c.running - (
           select coalesce(sum(e.ended), 0) from (
               select a.ended from pgqueue_arrival a where a.channel = c.name limit %(most)s) as e)),
       c.max_concurrency, c.release_at, c.release_interval_ms,
       case when m.parked_at is not null then coalesce(m.unknown_since, m.parked_at) end,
       m.unknown_since is not null,
       case when m.parked_at is not null then left(m.last_error, 300) end,
       case when m.suspended_attempt is not distinct from m.attempt and m.unlock_at is null
            then coalesce(w.since, h.finished_at, m.created_at) end,
       left(m.awaited_event, 600), e.emitted_at,
       e.emitted_at is not null and exists (select from pgqueue_ended n where n.event = m.awaited_event)
from pgqueue_message m
left join lateral (select * from pgqueue_queue where name = m.queue and paused_at is not null limit 1) as q on true
left join lateral (select * from pgqueue_channel where name = m.channel limit 1) as c on true
left join lateral (select * from pgqueue_event where name = m.awaited_event limit 1) as e on true
left join lateral (
    select s.finished_at as since from pgqueue_step s
    where s.message_id = m.id and s.status = 'waiting' and m.suspended_attempt is not null and m.after_ids is null
      and m.awaited_event is not distinct from case s.kind
          when 'event' then coalesce(s.result #>> '{}', s.name)
          when 'approval' then format('pgqueue:approval:%%s:%%s', m.id, s.name) end
    order by s.attempt desc, s.finished_at desc limit 1) as w on true
left join lateral (
    select a.finished_at from pgqueue_attempt a
    where a.message_id = m.id and m.suspended_attempt is not null and w.since is null
    order by a.id + 0 desc limit 1) as h on true
where m.id = any(%(ids)s)
"""


class Facts(NamedTuple):
    is_retry: bool
    after: int | None
    after_left: list[int]
    paused_at: dt.datetime | None
    paused_by: str | None
    running: int
    max_concurrency: int | None
    release_at: int | None
    release_interval_ms: int | None
    parked_since: int | None
    """Epoch ms; None: it is not parked."""
    is_unknown: bool
    parked_because: str | None
    suspended_since: dt.datetime | None
    """None: it is not suspended."""
    awaited_event: str | None
    emitted_at: dt.datetime | None
    is_told: bool
    """Somebody is going to be told that the event was emitted."""


class Reason(Protocol):
    def words(self, now: dt.datetime, /) -> Words: ...


@dataclass(frozen=True, slots=True)
class Locked:
    worker: str | None
    until: dt.datetime

    def words(self, now: dt.datetime) -> Words:
        if to_epoch_ms(self.until) > to_epoch_ms(now):
            return gettext("It is locked by {} until {}."), self.worker or "-", self.until
        gone = gettext("Its worker, {}, has gone away. The next worker that polls takes the message over.")
        return gone, self.worker or "-"


@dataclass(frozen=True, slots=True)
class NoWorker:
    queue: str

    def words(self, _: dt.datetime) -> Words:
        words = gettext(
            "No worker that serves the queue “{}” has been seen in the last minute. Start one: manage.py qworker "
            "--queues {}"
        )
        return words, self.queue, self.queue


@dataclass(frozen=True, slots=True)
class AfterOthers:
    count: int
    left: list[int]
    """Ids of the messages that have not ended, up to one more than are named."""

    def words(self, _: dt.datetime) -> Words:
        if not self.left:
            words = ngettext(
                "The job that it waits for has ended. A worker will notice this soon.",
                "All {} jobs that it waits for have ended. A worker will notice this soon.",
                self.count,
            )
            return words, number(self.count)
        if len(self.left) > MAX_NAMED:
            words = gettext("It waits for {} jobs, of which {} and more have not ended yet.")
        elif self.count == 1:
            return gettext("It waits for 1 job, {}, which has not ended yet."), self.left
        else:
            words = ngettext(
                "It waits for {} jobs, of which {} has not ended yet.",
                "It waits for {} jobs, of which {} have not ended yet.",
                len(self.left),
            )
        return words, number(self.count), self.left[:MAX_NAMED]


@dataclass(frozen=True, slots=True)
class Quarantined:
    lost: int
    at: dt.datetime

    def words(self, now: dt.datetime) -> Words:
        if to_epoch_ms(self.at) <= to_epoch_ms(now):
            words = ngettext(
                "It is quarantined: its last worker died while it ran. A worker takes it alone, so that it can harm no "
                "other job.",
                "It is quarantined: its last {0} workers died while it ran. A worker takes it alone, so that it can "
                "harm no other job.",
                self.lost,
            )
            return words, self.lost
        words = ngettext(
            "It is quarantined: its last worker died while it ran. A worker takes it alone at {1}, so that it can harm "
            "no other job.",
            "It is quarantined: its last {0} workers died while it ran. A worker takes it alone at {1}, so that it can "
            "harm no other job.",
            self.lost,
        )
        return words, self.lost, self.at


@dataclass(frozen=True, slots=True)
class Parked:
    """No worker that has claimed it knows its task, or can take its arguments."""

    since: dt.datetime
    because: str

    def words(self, _: dt.datetime) -> Words:
        words = gettext("It waits since {} for a worker that knows its task. The last one that did not: {}")
        return words, self.since, self.because


@dataclass(frozen=True, slots=True)
class LeftToLaterVersion:
    """A worker of an earlier version has claimed it, and left it to living workers of its version."""

    since: dt.datetime
    because: str

    def words(self, _: dt.datetime) -> Words:
        return gettext("It waits since {} for a worker of its version. {}"), self.since, self.because


@dataclass(frozen=True, slots=True)
class SuspendedUntil:
    """A durable task waits for a time, an event or a decision."""

    until: dt.datetime
    event: str | None
    since: dt.datetime

    def words(self, now: dt.datetime) -> Words:
        """
        >>> noon = dt.datetime(2030, 1, 1, 12, tzinfo=dt.UTC)
        >>> sentence(SuspendedUntil(EpochDateTime.from_ms(2**63 - 1), "paid:7", noon), noon)
        'It is suspended since 2030-01-01 12:00:00+00:00: it waits for the event “paid:7”.'
        """
        if self.event is None:
            far = f", {far}" if (far := relative(self.until, now)) else ""
            return gettext("It is suspended since {}: it sleeps until {}{}."), self.since, self.until, far
        decision = _decision(self.event)
        if to_epoch_ms(self.until) >= NEVER_MS:
            if decision is not None:
                return gettext("It is suspended since {}: it waits for the decision “{}”."), self.since, decision
            return gettext("It is suspended since {}: it waits for the event “{}”."), self.since, self.event
        if decision is not None:
            words = gettext("It is suspended since {}: it waits for the decision “{}”, until {} at the latest.")
            return words, self.since, decision, self.until
        words = gettext("It is suspended since {}: it waits for the event “{}”, until {} at the latest.")
        return words, self.since, self.event, self.until


@dataclass(frozen=True, slots=True)
class SuspendedSince:
    """A durable task waits for others, which another reason names."""

    since: dt.datetime

    def words(self, _: dt.datetime) -> Words:
        return gettext("It is suspended since {}."), self.since


@dataclass(frozen=True, slots=True)
class EventEmitted:
    """The event or decision of a durable task has come, and the task has not been woken yet."""

    event: str
    since: dt.datetime
    emitted_at: dt.datetime
    is_told: bool
    """A worker is going to look at those who wait for the event."""

    def words(self, _: dt.datetime) -> Words:
        decision = _decision(self.event)
        if self.is_told and decision is not None:
            words = gettext("It waits since {} for the decision “{}”, made at {}. A worker will notice this soon.")
        elif self.is_told:
            words = gettext("It waits since {} for the event “{}”, emitted at {}. A worker will notice this soon.")
        elif decision is not None:
            words = gettext(
                "It waits since {} for the decision “{}”, made at {}, which has not woken it. Run it now: then it "
                "looks for the decision again."
            )
        else:
            words = gettext(
                "It waits since {} for the event “{}”, emitted at {}, which has not woken it. Run it now: then it "
                "looks for the event again."
            )
        return words, self.since, decision or self.event, self.emitted_at


def _decision(event: str) -> str | None:
    """Returns the name of the decision that emits the event.

    >>> _decision("pgqueue:approval:7:ship: abroad"), _decision("paid:7")
    ('ship: abroad', None)
    """
    parts = event.split(":", 3) if event.startswith("pgqueue:approval:") else []
    return parts[3] if len(parts) == 4 else None


@dataclass(frozen=True, slots=True)
class Scheduled:
    at: dt.datetime
    failed_attempt: int | None
    """None: it is no retry."""

    def words(self, now: dt.datetime) -> Words:
        far = f", {far}" if (far := relative(self.at, now)) else ""
        if self.failed_attempt is None:
            return gettext("It is scheduled for {}{}."), self.at, far
        words = gettext("It waits for its retry: attempt {} ended with an error. The next one is due at {}{}.")
        return words, self.failed_attempt, self.at, far


@dataclass(frozen=True, slots=True)
class ChannelIsFull:
    channel: str
    running: int
    limit: int

    def words(self, _: dt.datetime) -> Words:
        if not self.limit:
            return gettext("Channel {} stands still: none of its messages may run."), self.channel
        return gettext("It waits for channel {}: {} of {} running."), self.channel, self.running, self.limit


@dataclass(frozen=True, slots=True)
class ChannelPaced:
    channel: str
    interval: dt.timedelta
    next_at: dt.datetime

    def words(self, now: dt.datetime) -> Words:
        wait = span(dt.timedelta(milliseconds=to_epoch_ms(self.next_at) - to_epoch_ms(now)))
        words = gettext("Channel {} begins one message every {}: the next one in {}.")
        return words, self.channel, span(self.interval), wait


@dataclass(frozen=True, slots=True)
class Behind:
    """The message is ready, but others come first."""

    line: str
    position: Capped
    rate: float
    """Messages that ended per second lately."""

    def words(self, _: dt.datetime) -> Words:
        """
        >>> Behind("queue mail", Capped(80), rate=2.0).words(dt.datetime.now())[-1]
        'about 40 s at the present rate'
        """
        if self.position.is_capped:
            return gettext("It is ready: position {} of {}."), self.position, self.line
        how_long = gettext("no estimate: no message of this queue has ended in the last 10 minutes")
        if self.rate:
            wait = span(dt.timedelta(seconds=self.position.value / self.rate))
            how_long = gettext("about {time} at the present rate").format(time=wait)
        return gettext("It is ready: position {} of {}, {}."), self.position, self.line, how_long


def sentence(reason: Reason, now: dt.datetime) -> str:
    """Returns a reason as plain text."""
    template, *values = reason.words(now)
    return template.format(*map(_plain, values))


def _plain(value: Any) -> Any:
    match value:
        case dt.datetime():
            return outside(value) or aware(value).isoformat(" ", "seconds")
        case list():
            return ", ".join(map(str, value))
    return value


def reasons(messages: Sequence[Message], now: dt.datetime, service: Service, *, using: str) -> dict[int, list[Reason]]:
    """Returns by id why each message does not run, the main reason first; empty if it only waits for its turn."""
    asked = {"ids": [message.pk for message in messages], "named": MAX_NAMED + 1, "most": MAX_POSITION}
    facts = {pk: Facts(*row) for pk, *row in queries.rows(FACTS, asked, using=using)}
    return {
        message.pk: list(_reasons(message, facts[message.pk], now, service)) if message.pk in facts else []
        for message in messages
    }


def _reasons(message: Message, facts: Facts, now: dt.datetime, service: Service) -> Iterator[Reason]:
    now_ms, unlock_at = to_epoch_ms(now), message.unlock_at
    if unlock_at is not None:
        yield Locked(message.worker, unlock_at)
        if to_epoch_ms(unlock_at) > now_ms:
            return
    if facts.paused_at is not None:
        yield Paused(queue=message.queue, since=facts.paused_at, by=facts.paused_by)
    if unlock_at is None:
        yield from _not_before(message, facts, now_ms)
    if message.channel is not None:
        yield from _channel(message.channel, facts, now_ms)
    if service.lacks(message):
        yield NoWorker(message.queue)


def _not_before(message: Message, facts: Facts, now_ms: int) -> Iterator[Reason]:
    if facts.after:
        yield AfterOthers(facts.after, facts.after_left)
        if facts.suspended_since is not None:
            yield SuspendedSince(facts.suspended_since)
    elif facts.parked_since is not None:
        reason = Parked if facts.is_unknown else LeftToLaterVersion
        yield reason(EpochDateTime.from_ms(facts.parked_since), facts.parked_because or "-")
    elif message.alone_at is not None:
        yield Quarantined(message.lost, message.alone_at)
    elif facts.suspended_since is not None and to_epoch_ms(message.dequeue_at) > now_ms:
        yield _suspended(message.dequeue_at, facts.suspended_since, facts)
    elif to_epoch_ms(message.dequeue_at) > now_ms:
        yield Scheduled(message.dequeue_at, message.attempt if facts.is_retry else None)


def _suspended(until: dt.datetime, since: dt.datetime, facts: Facts) -> Reason:
    if facts.awaited_event is not None and facts.emitted_at is not None:
        return EventEmitted(facts.awaited_event, since, facts.emitted_at, facts.is_told)
    return SuspendedUntil(until, facts.awaited_event, since)


def _channel(name: str, facts: Facts, now_ms: int) -> Iterator[Reason]:
    if facts.max_concurrency is not None and facts.running >= facts.max_concurrency:
        yield ChannelIsFull(name, facts.running, facts.max_concurrency)
    if facts.release_at is not None and facts.release_at > now_ms:
        interval = dt.timedelta(milliseconds=facts.release_interval_ms or 0)
        yield ChannelPaced(name, interval, EpochDateTime.from_ms(facts.release_at))


def behind(message: Message, now: dt.datetime, *, using: str) -> Behind:
    """Returns the position of a ready message, and how fast the messages before it end."""
    asked = {
        "queue": message.queue,
        "channel": message.channel,
        "raw": message.task is None,
        "priority": message.priority,
        "dequeue_at": to_epoch_ms(message.dequeue_at),
        "id": message.pk,
        "now": to_epoch_ms(now),
        "most": MAX_POSITION,
        "newest": MAX_ATTEMPTS,
        "since": now - RECENT,
    }
    [(ahead,)] = queries.rows(AHEAD_IN_QUEUE if message.channel is None else AHEAD_IN_CHANNEL, asked, using=using)
    [(ended, first)] = queries.rows(ENDED, asked, using=using)
    line = gettext("queue {name}").format(name=message.queue)
    if message.channel is not None:
        line = gettext("channel {name}").format(name=message.channel)
    rate = ended / max(1.0, (now - first).total_seconds()) if ended else 0.0
    return Behind(line, Capped.of(ahead + 1, MAX_POSITION), rate)


def idle_queues(now: dt.datetime, *, using: str) -> Iterator[tuple[Paused | NoWorker, Count]]:
    """Yields paused queues and queues without a worker, with their counts."""
    paused, service = overview.paused(using=using), Service.at(now, using=using)
    look = counts.taken(now, wanted=paused, using=using)
    idle = {name for name in look.names | set(paused) if name in paused or not service.serves(name)}
    for name, count in counts.of(look.chosen(idle, first=paused), look, using=using).items():
        yield paused.get(name) or NoWorker(name), count
