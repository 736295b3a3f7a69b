"""How many messages each worker holds: a worker that holds one is busy, whether or not it can be woken."""

from __future__ import annotations

import datetime as dt
from collections import defaultdict
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

from django_pgqueue.monitoring.overview import queries
from django_pgqueue.monitoring.overview.capped import Capped
from django_pgqueue.values.times import to_epoch_ms

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

MOST = 10_000
"""Locked messages are counted up to here."""

HELD = """
select h.worker, count(*) from (
    select m.worker from pgqueue_message m where m.unlock_at is not null and m.unlock_at > %(now)s
    order by m.unlock_at desc limit %(most)s
) as h
group by h.worker
"""


@dataclass(frozen=True, slots=True)
class HeldCounts:
    """Counts of locked messages, by the worker that holds them."""

    counts: Mapping[str, int]
    is_capped: bool = False

    @classmethod
    def at(cls, now: dt.datetime, *, using: str) -> HeldCounts:
        found = dict(queries.rows(HELD, {"now": to_epoch_ms(now), "most": MOST}, using=using))
        return cls(found, sum(found.values()) >= MOST)

    def by(self, worker: str) -> int:
        return self.counts.get(worker, 0)

    def is_busy(self, worker: str, asleep_until: dt.datetime | None, now: dt.datetime) -> bool:
        """Whether the worker holds a message.

        If not all locks were counted, one that is not found among them is busy unless it sleeps.
        """
        sleeps = asleep_until is not None and to_epoch_ms(asleep_until) > to_epoch_ms(now)
        return self.by(worker) > 0 or (self.is_capped and not sleeps)

    def used(self, slots: Mapping[str, int]) -> Capped:
        """Returns how many of the workers' slots are taken.

        A worker may hold more messages than it has slots: those are for the slots that become free next.
        """
        return Capped(sum(min(self.by(worker), count) for worker, count in slots.items()), self.is_capped)


RUNS = """
select h.worker, h.task, extract(epoch from greatest(%(at)s - h.locked_at, interval '0'))::float8 from (
    select m.worker, m.task,
           least(greatest(m.locked_at, '0001-01-02 00:00:00+00'), '9999-12-30 00:00:00+00') as locked_at
    from pgqueue_message m where m.unlock_at is not null and m.unlock_at > %(now)s
    order by m.unlock_at desc limit %(most)s
) as h
where h.worker = any (%(workers)s::text[]) and h.locked_at is not null
order by 3 desc
"""
MAX_RUNS = 2_000


class CurrentRun(NamedTuple):
    """A job that a worker holds, and for how long."""

    task: str | None
    age: dt.timedelta


def runs(workers: Sequence[str], now: dt.datetime, *, using: str) -> dict[str, list[CurrentRun]]:
    """Returns what each of the workers runs, the longest first."""
    asked = {"at": now, "now": to_epoch_ms(now), "most": MAX_RUNS, "workers": list(workers)}
    found: dict[str, list[CurrentRun]] = defaultdict(list)
    for worker, task, seconds in queries.rows(RUNS, asked, using=using, settings={}) if workers else ():
        found[worker].append(CurrentRun(task, dt.timedelta(seconds=seconds)))
    return found
