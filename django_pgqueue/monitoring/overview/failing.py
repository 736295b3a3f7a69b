"""Queues whose attempts fail far more often than on the day before, by the roll-up."""

from __future__ import annotations

import datetime as dt
from dataclasses import dataclass
from itertools import groupby
from operator import itemgetter
from typing import Any

from django_pgqueue.monitoring.overview import queries

FIVE_MINUTES, HOUR = dt.timedelta(minutes=5), dt.timedelta(hours=1)
SPAN = dt.timedelta(minutes=15)
"""Failures of this span are compared with those of the day before."""
MIN_FAILURES, MIN_TIMES = 10, 3.0
MIN_HOURS = 2
"""A roll-up that is younger knows nothing that would be usual."""

FAILURES = """
with usual as (
    select r.queue, sum(r.failed + r.retried + r.lost) as failures
    from pgqueue_rollup r
    where r.minutes = 60 and r.starts_at >= %(day)s and r.starts_at < %(hour)s
    group by r.queue
),
known as (
    select count(distinct r.starts_at) as hours from pgqueue_rollup r
    where r.minutes = 60 and r.starts_at >= %(day)s and r.starts_at < %(hour)s
)
select f.queue, f.starts_at, f.failures, coalesce(u.failures, 0)::double precision / (12 * k.hours)
from (
    select r.queue, r.starts_at, sum(r.failed + r.retried + r.lost)::bigint as failures
    from pgqueue_rollup r
    where r.minutes = 5 and r.starts_at > %(since)s and r.starts_at <= %(now)s
    group by r.queue, r.starts_at
) as f
cross join known k
left join usual u on u.queue = f.queue
where k.hours >= %(min_hours)s and f.failures > 0
order by f.queue, f.starts_at desc
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Failing:
    queue: str
    failures: int
    """Within the last SPAN."""
    times: float | None
    """So many times the usual number.  None: nothing had failed the day before."""
    since: dt.datetime


def taken(now: dt.datetime, *, using: str) -> list[Failing]:
    """Returns the queues that fail most unusually first."""
    this_hour = now.replace(minute=0, second=0, microsecond=0)
    asked: dict[str, Any] = {
        "now": now, "since": now - 6 * HOUR, "hour": this_hour, "day": this_hour - 24 * HOUR, "min_hours": MIN_HOURS,
    }  # fmt: skip
    rows = queries.rows(FAILURES, asked, using=using, settings={})
    found = [one for queue, of in groupby(rows, itemgetter(0)) if (one := _failing(queue, list(of), now)) is not None]
    return sorted(found, key=lambda one: (-(one.times or 1e9), -one.failures, one.queue))


def _failing(queue: str, rows: list[tuple[Any, ...]], now: dt.datetime) -> Failing | None:
    """``rows`` are those of the queue, the newest first, each with the usual number for five minutes."""
    usual = rows[0][3]
    failures = sum(row[2] for row in rows if row[1] > now - SPAN)
    expected = usual * (SPAN / FIVE_MINUTES)
    if failures < MIN_FAILURES or failures < MIN_TIMES * expected:
        return None
    since = next(row[1] for row in rows if row[1] > now - SPAN)
    for _, starts_at, count, _ in rows:
        # A gap of five minutes may be a pause between two retries.
        if since - starts_at > 2 * FIVE_MINUTES or count < 2 * usual:
            break
        since = min(since, starts_at)
    return Failing(queue=queue, failures=failures, times=failures / expected if expected else None, since=since)
