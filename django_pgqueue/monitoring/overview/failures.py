"""Counts messages that failed for good, of each queue: by the index of errors, or by even ranges of it."""

from __future__ import annotations

import datetime as dt
from typing import TYPE_CHECKING, Any, NamedTuple

from django_pgqueue.monitoring.overview import budget, queries
from django_pgqueue.monitoring.overview.figure import NONE, Figure
from django_pgqueue.monitoring.overview.throughput import ENDS, WITHIN
from django_pgqueue.values.times import midnight_before

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

DAY, HOUR = dt.timedelta(days=1), dt.timedelta(hours=1)
MAX_ERRORS = 100_000
"""Reading more errors takes longer than the budget: it is not even tried."""
SAMPLED = 20_000
"""Of more errors, about so many stand for all.  Fewer are always counted."""
RANGES = 1_000
ENTRIES_A_BLOCK = 366
"""Of an index of ascending bigints, whose blocks are filled to nine tenths."""

# The index of errors is written at its end alone, so its size tells how many there are.
SIZE = """
select coalesce(sum(pg_relation_size(x.indexrelid)), 0)::bigint / current_setting('block_size')::bigint
from pg_inherits i join pg_index x on x.indrelid = i.inhrelid join pg_class c on c.oid = i.inhrelid
where i.inhparent = 'pgqueue_attempt'::regclass and c.relname = any(%(partitions)s)
  and x.indexrelid in (select e.inhrelid from pg_inherits e where e.inhparent = 'pgqueue_attempt_error_ix'::regclass)
"""

# The statuses are those of the partial index.  The range is whole days, so a scan of partitions skips no row.
COUNTED = f"""
select a.queue, count(*), count(*) filter (where a.finished_at > %(hour_ago)s)
from pgqueue_attempt a
where a.status in ('failed', 'retried', 'lost') and a.status = 'failed' and a.finished_at > %(day_ago)s and {WITHIN}
group by a.queue
"""  # noqa: S608 -- no value is in it

# Each range begins somewhere in its step: what fails periodically is met as often as it is there.
# The offset keeps the ranges outside: with ten million attempts the planner read all errors, and joined them with each.
IN_RANGES = f"""
select e.queue, count(*), count(*) filter (where e.finished_at > %(hour_ago)s)
from generate_series(%(first)s::bigint, %(last)s::bigint, %(step)s::bigint) as g (id)
cross join lateral (select g.id + abs(hashint8extended(g.id, 80) %% (%(step)s - %(width)s + 1)) as id) as f
cross join lateral (
    select a.queue, a.finished_at from pgqueue_attempt a
    where a.id >= f.id and a.id < f.id + %(width)s and a.status in ('failed', 'retried', 'lost')
      and a.status = 'failed' and a.finished_at > %(day_ago)s and {WITHIN}
    offset 0
) as e
group by e.queue
"""  # noqa: S608


class Failures(NamedTuple):
    """Messages of one queue."""

    of_a_day: Figure = NONE
    of_an_hour: Figure = NONE


class AllFailures(dict[str, Failures]):
    """By queue.  Where errors were sampled, a queue that is missing has about none."""

    def __init__(self, found: Iterable[tuple[str, Failures]], *, is_exact: bool) -> None:
        super().__init__(found)
        self.is_exact = is_exact

    def __missing__(self, queue: str) -> Failures:
        return Failures() if self.is_exact else Failures(Figure.about(0), Figure.about(0))


def taken(now: dt.datetime, *, using: str) -> AllFailures:
    midnight = midnight_before(now)
    asked: dict[str, Any] = {
        "day_ago": now - DAY, "hour_ago": now - HOUR, "day": midnight - DAY, "end": midnight + 2 * DAY,
    }  # fmt: skip
    errors = ENTRIES_A_BLOCK * _blocks(midnight, using=using)
    if errors <= SAMPLED:
        return _counted(queries.rows(COUNTED, asked, using=using))
    if errors <= MAX_ERRORS and (rows := budget.rows(COUNTED, asked, queries.PINNED, using=using)) is not None:
        return _counted(rows)
    return AllFailures(_sampled(errors, asked, using=using), is_exact=False)


def _counted(rows: list[tuple[Any, ...]]) -> AllFailures:
    return AllFailures(((queue, Failures(Figure(day), Figure(hour))) for queue, day, hour in rows), is_exact=True)


def _blocks(midnight: dt.datetime, *, using: str) -> int:
    days = [f"pgqueue_attempt_{midnight + n * DAY:%Y%m%d}" for n in (-1, 0, 1)]
    [(blocks,)] = queries.rows(SIZE, {"partitions": [*days, "pgqueue_attempt_default"]}, using=using)
    return int(blocks)


def _sampled(errors: int, asked: dict[str, Any], *, using: str) -> Iterator[tuple[str, Failures]]:
    [(first, last)] = queries.rows(ENDS, asked, using=using)
    if first is None:
        return
    step = max(1, -(-(last - first + 1) // RANGES))
    width = min(step, max(1, round(step * SAMPLED / max(1, errors))))
    ranges = {**asked, "first": first, "last": last, "step": step, "width": width}
    for queue, *seen in queries.rows(IN_RANGES, ranges, using=using):
        yield queue, Failures(*(Figure.about(number * step / width, at_least=number) for number in seen))
