"""Estimates the ended attempts of the last hours, and how long they had waited, from a sample of the history.

The history has no index by queue, and may hold millions of rows for each hour.  But its ids come in the order in which
attempts end.  So a few rows at even distances of ids stand for those between them: the page costs the same for a
thousand rows and for a billion.  If there are no more rows than the sample takes, the numbers are exact.
"""

from __future__ import annotations

import datetime as dt
from dataclasses import dataclass, field
from statistics import median
from typing import TYPE_CHECKING, Any

from django_pgqueue.monitoring.overview import queries
from django_pgqueue.values.times import midnight_before, to_epoch_ms

if TYPE_CHECKING:
    from collections.abc import Iterable

WINDOW = dt.timedelta(hours=4)
BUCKETS = 48
BUCKET = WINDOW / BUCKETS
RECENT = 2 * BUCKET
"""The span of time of which rates and trends tell."""
SAMPLE = 1_500
BRACKETS = 100
DAY = dt.timedelta(days=1)

# The range is whole days, as the partitions are, so the scan of the partitions skips no row.
WITHIN = "a.finished_at >= %(day)s and a.finished_at < %(end)s"

ENDS = f"""
select (select a.id from pgqueue_attempt a where {WITHIN} order by a.id limit 1),
       (select a.id from pgqueue_attempt a where {WITHIN} order by a.id desc limit 1)
"""  # noqa: S608 -- no value is in it

BEFORE = f"""
select s.id
from generate_series(%(first)s::bigint, %(last)s::bigint, %(step)s::bigint) as g (id)
cross join lateral (
    select a.id, a.finished_at from pgqueue_attempt a where a.id >= g.id and {WITHIN} order by a.id limit 1
) as s
where s.finished_at < %(since)s
"""  # noqa: S608

ROWS = f"""
select s.id, s.queue, s.finished_at,
       case when isfinite(s.started_at) and isfinite(s.created_at) then
           floor(extract(epoch from s.started_at) * 1000)::bigint
           - greatest(s.dequeue_at, floor(extract(epoch from s.created_at) * 1000)::bigint) end,
       coalesce(s.started_at, s.finished_at) > %(recent_at)s and s.dequeue_at <= %(recent)s
       and s.created_at <= %(recent_at)s
from generate_series(%(first)s::bigint, %(last)s::bigint, %(step)s::bigint) as g (id)
cross join lateral (
    select a.id, a.queue, a.finished_at, a.started_at, a.created_at, a.dequeue_at
    from pgqueue_attempt a where a.id >= g.id and {WITHIN} order by a.id limit 1
) as s
where s.finished_at >= %(since)s
"""  # noqa: S608


@dataclass(slots=True)
class Pulse:
    """Ended attempts of one queue in each span of time, the oldest first, and their waits in milliseconds."""

    ended: list[float] = field(default_factory=lambda: [0.0] * BUCKETS)
    waits: list[list[int]] = field(default_factory=lambda: [[] for _ in range(BUCKETS)])
    worked_off: float = 0.0
    """Those that were ready before the last RECENT, and began within it."""

    @property
    def waited_ms(self) -> list[float | None]:
        return [median(waits) if waits else None for waits in self.waits]

    @property
    def latest_wait(self) -> dt.timedelta | None:
        """The newest median."""
        waits = [wait for wait in self.waited_ms if wait is not None]
        return dt.timedelta(milliseconds=waits[-1]) if waits else None

    @property
    def a_minute(self) -> float:
        """Attempts that ended per minute, in the newest two spans of time."""
        return sum(self.ended[-2:]) / (RECENT.total_seconds() / 60)


@dataclass(frozen=True, slots=True, kw_only=True)
class Pulses:
    queues: dict[str, Pulse]
    step: int
    """So many attempts stand behind each row of the sample."""

    @property
    def is_exact(self) -> bool:
        return self.step == 1


def taken(now: dt.datetime, *, using: str) -> Pulses:
    since = now - WINDOW
    asked: dict[str, Any] = {
        "day": midnight_before(since), "end": midnight_before(now) + 2 * DAY, "since": since,
        "recent_at": now - RECENT, "recent": to_epoch_ms(now - RECENT),
    }  # fmt: skip
    [(first, last)] = queries.rows(ENDS, asked, using=using)
    if first is None:
        return Pulses(queues={}, step=1)
    for _ in range(2):  # narrows a day's rows to a ten-thousandth of them
        first = _closer(first, last, asked, using=using)
    step = max(1, -(-(last - first + 1) // SAMPLE))
    rows = queries.rows(ROWS, {**asked, "first": first, "last": last, "step": step}, using=using)
    return Pulses(queues=_sorted(rows, step, since), step=step)


def _closer(first: int, last: int, asked: dict[str, Any], *, using: str) -> int:
    """Returns an id before the window, but closer to it."""
    step = max(1, (last - first) // BRACKETS)
    before = queries.rows(BEFORE, {**asked, "first": first, "last": last, "step": step}, using=using)
    return max((row[0] for row in before), default=first)


def _sorted(rows: Iterable[tuple[Any, ...]], step: int, since: dt.datetime) -> dict[str, Pulse]:
    found: dict[str, Pulse] = {}
    # Where ids are missing, several probes of the sample find the same row.
    for _, queue, finished_at, waited_ms, is_worked_off in {row[0]: row for row in rows}.values():
        place = min(BUCKETS - 1, max(0, int((finished_at - since) / BUCKET)))
        pulse = found.setdefault(queue, Pulse())
        pulse.ended[place] += step
        pulse.worked_off += step if is_worked_off else 0
        if waited_ms is not None:
            pulse.waits[place].append(max(0, waited_ms))
    return found
