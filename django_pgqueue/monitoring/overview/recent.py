"""Figures of the last hour or day, by queue or by task, from the roll-up that workers keep."""

from __future__ import annotations

import datetime as dt
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from django_pgqueue.monitoring.overview import queries
from django_pgqueue.values.histogram import middle_ms

if TYPE_CHECKING:
    from collections.abc import Iterable

HOUR, DAY = dt.timedelta(hours=1), dt.timedelta(days=1)
LISTED = 100

# The figures of five minutes for one hour, and those of hours for a day: few rows, by their key.
FIGURES = """
with chosen as materialized (
    select r.* from pgqueue_rollup r
    where r.minutes = %(minutes)s and r.starts_at > %(since)s and r.starts_at <= %(until)s
      and (%(queues)s::text[] is null or r.queue = any (%(queues)s::text[]))
),
total as (
    select c.queue, {task} as task,
           sum(c.succeeded + c.deferred + c.retried + c.failed + c.cancelled + c.lost) as ended,
           sum(c.failed) as failed, sum(c.retried + c.lost) as again, sum(c.run_ms) as run_ms
    from chosen c group by 1, 2 order by {order} limit %(listed)s
),
bucket as (
    select c.queue, {task} as task, b.is_wait, b.bucket::integer as bucket, sum(b.times::bigint) as times
    from chosen c
    cross join lateral (
        select true as is_wait, w.key as bucket, w.value as times from jsonb_each_text(c.wait_histogram) as w
        union all
        select false, u.key, u.value from jsonb_each_text(c.run_histogram) as u
    ) as b
    group by 1, 2, 3, 4
),
place as (
    select b.*, sum(b.times) over (partition by b.queue, b.task, b.is_wait order by b.bucket) as so_far,
           sum(b.times) over (partition by b.queue, b.task, b.is_wait) as all_times
    from bucket b
),
share as (
    select p.queue, p.task,
           min(p.bucket) filter (where p.is_wait and p.so_far >= ceil(p.all_times * 0.5)) as wait_p50,
           min(p.bucket) filter (where p.is_wait and p.so_far >= ceil(p.all_times * 0.95)) as wait_p95,
           min(p.bucket) filter (where not p.is_wait and p.so_far >= ceil(p.all_times * 0.5)) as run_p50,
           min(p.bucket) filter (where not p.is_wait and p.so_far >= ceil(p.all_times * 0.95)) as run_p95
    from place p group by p.queue, p.task
)
select t.queue, t.task, t.ended, t.failed, t.again, t.run_ms, s.wait_p50, s.wait_p95, s.run_p50, s.run_p95
from total t left join share s on s.queue = t.queue and s.task is not distinct from t.task
"""
BY_QUEUE = FIGURES.format(task="null::text", order="ended desc, 1")
BY_TASK = FIGURES.format(task="c.task", order="run_ms desc, 1, 2")


@dataclass(frozen=True, slots=True, kw_only=True)
class Recent:
    """Attempts of a queue, or of a task in a queue, that ended within a span of time."""

    queue: str
    task: str | None
    """None: of a queue, or of raw messages."""
    ended: int
    failed: int
    again: int
    """Retried after an error, or lost."""
    run: dt.timedelta
    """The run time of all together."""
    wait_p50: dt.timedelta | None
    wait_p95: dt.timedelta | None
    run_p50: dt.timedelta | None
    run_p95: dt.timedelta | None


def queues(
    now: dt.datetime, *, within: dt.timedelta = HOUR, named: Iterable[str] | None = None, using: str
) -> dict[str, Recent]:
    """Returns the figures of each of the queues, or of those with the most attempts."""
    return {one.queue: one for one in _read(BY_QUEUE, now, within, named, using=using)}


def tasks(
    now: dt.datetime, *, within: dt.timedelta = HOUR, named: Iterable[str] | None = None, using: str
) -> list[Recent]:
    """Returns the figures of the tasks of each queue, those that ran longest altogether first."""
    return _read(BY_TASK, now, within, named, using=using)


def _read(sql: str, now: dt.datetime, within: dt.timedelta, named: Iterable[str] | None, *, using: str) -> list[Recent]:
    asked: dict[str, Any] = {
        "minutes": 5 if within <= HOUR else 60, "since": now - within, "until": now,
        "queues": None if named is None else list(named), "listed": LISTED,
    }  # fmt: skip
    # The pins are for walks of large indexes: these few rows are hashed and sorted.
    return [_recent(row) for row in queries.rows(sql, asked, using=using, settings={})]


def _recent(row: tuple[Any, ...]) -> Recent:
    queue, task, ended, failed, again, run_ms, *buckets = row
    wait_p50, wait_p95, run_p50, run_p95 = map(_span, buckets)
    return Recent(
        queue=queue, task=task, ended=int(ended), failed=int(failed), again=int(again),
        run=dt.timedelta(milliseconds=min(run_ms, 1e14)),
        wait_p50=wait_p50, wait_p95=wait_p95, run_p50=run_p50, run_p95=run_p95,
    )  # fmt: skip


def _span(bucket: int | None) -> dt.timedelta | None:
    return None if bucket is None else dt.timedelta(milliseconds=min(middle_ms(bucket), 1e14))
