"""Counts the messages of all queues by state: one read of the table while it is small, else of some of its blocks."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

from django_pgqueue.monitoring.overview import budget, queries
from django_pgqueue.monitoring.overview.throughput import RECENT
from django_pgqueue.values.times import OUT_OF_REACH_MS, PARKED_MS, to_epoch_ms

if TYPE_CHECKING:
    import datetime as dt
    from collections.abc import Iterable

SAMPLED_BLOCKS = 3_000
"""Of a larger table, so many blocks stand for all.  A smaller one is always counted."""
MAX_BLOCKS = 32_768
"""Reading more takes longer than the budget: it is not even tried."""
LISTED = 1_000
"""The queues with the most messages that are ready, run or have expired; others only if they are named."""
SURE = 1_000
"""So many rows of a sample say well how many there are: they come from 30 blocks or more."""
SEED = 80
"""The same blocks again and again: they are in memory, and a number changes only if the table does."""

# A sort would spill what a hash of the queues holds.
ONE_READ = {"enable_seqscan": "on", "enable_sort": "off", "max_parallel_workers_per_gather": "0"}

SIZE = """
select pg_relation_size('pgqueue_message') / current_setting('block_size')::bigint
"""

STATES = """
with counted as materialized (
    select m.queue,
           count(*) filter (where m.unlock_at is null and m.dequeue_at <= %(now)s) as ready,
           count(*) filter (where m.unlock_at is null and m.dequeue_at > %(now)s and m.dequeue_at < %(parked)s)
               as scheduled,
           count(*) filter (where m.unlock_at is null and m.dequeue_at = %(out_of_reach)s) as after_others,
           count(*) filter (where m.unlock_at > %(now)s) as running,
           count(*) filter (where m.unlock_at <= %(now)s) as expired,
           count(*) filter (
               where m.unlock_at is null and m.dequeue_at <= %(now)s
                 and (m.dequeue_at > %(recent)s or m.created_at > %(recent_at)s)) as newly_ready,
           count(*) filter (
               where m.unlock_at is not null and m.locked_at > %(recent_at)s
                 and m.dequeue_at <= %(recent)s and m.created_at <= %(recent_at)s) as newly_begun
    from pgqueue_message m {sample}
    group by m.queue
)
(select c.* from counted c order by c.ready + c.running + c.expired desc, c.scheduled desc, c.queue limit %(listed)s)
union
select c.* from counted c where c.queue = any(%(wanted)s::text[])
"""
ALL = STATES.format(sample="")
SOME = STATES.format(sample="tablesample system (%(percent)s) repeatable (%(seed)s)")


class States(NamedTuple):
    """Messages of a queue: of all, or of the sample."""

    ready: int = 0
    scheduled: int = 0
    after_others: int = 0
    running: int = 0
    expired: int = 0
    newly_ready: int = 0
    """Ready ones that were not before the last RECENT."""
    newly_begun: int = 0
    """Locked ones that were ready before it."""


NOBODY = States()


@dataclass(frozen=True, slots=True, kw_only=True)
class Census:
    queues: dict[str, States]
    scale: float | None
    """So many messages stand behind each row of the sample; None: all of them were counted."""
    is_whole: bool
    """Whether no queue is left out."""

    @property
    def is_exact(self) -> bool:
        return self.scale is None

    def estimate(self, queue: str, state: str) -> float:
        counted: int = getattr(self.queues.get(queue, NOBODY), state)
        return counted * (self.scale or 1)

    def is_sure(self, queue: str, state: str) -> bool:
        """Whether counting on by an index would add nothing."""
        return self.is_exact or getattr(self.queues.get(queue, NOBODY), state) >= SURE


def taken(now: dt.datetime, *, wanted: Iterable[str] = (), using: str) -> Census:
    """Returns the census, with the ``wanted`` queues in any case, as far as they have messages."""
    recent_at = now - RECENT
    asked: dict[str, Any] = {
        "now": to_epoch_ms(now), "recent": to_epoch_ms(recent_at), "recent_at": recent_at,
        "out_of_reach": OUT_OF_REACH_MS, "parked": PARKED_MS, "listed": LISTED + 1,
        "wanted": list(wanted), "seed": SEED,
    }  # fmt: skip
    [(blocks,)] = queries.rows(SIZE, using=using)
    if blocks <= SAMPLED_BLOCKS:
        return _census(queries.rows(ALL, asked, using=using, settings=ONE_READ), scale=None)
    if blocks <= MAX_BLOCKS and (rows := budget.rows(ALL, asked, ONE_READ, using=using)) is not None:
        return _census(rows, scale=None)
    percent = 100 * SAMPLED_BLOCKS / blocks
    sample = queries.rows(SOME, asked | {"percent": percent}, using=using, settings=ONE_READ)
    return _census(sample, scale=100 / percent if percent else 1.0)


def _census(rows: list[tuple[Any, ...]], *, scale: float | None) -> Census:
    return Census(queues={queue: States(*states) for queue, *states in rows}, scale=scale, is_whole=len(rows) <= LISTED)
