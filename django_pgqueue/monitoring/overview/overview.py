"""The overview of a database at one moment."""

from __future__ import annotations

import datetime as dt
from dataclasses import dataclass
from typing import TYPE_CHECKING

from django.db import connections

from django_pgqueue import functions
from django_pgqueue.models.tables import QueueState, Schedule
from django_pgqueue.monitoring.overview import counts, long_transactions, throughput as pulse
from django_pgqueue.monitoring.overview.clamped import Moment
from django_pgqueue.monitoring.overview.counts import Capped
from django_pgqueue.monitoring.overview.coverage import Service
from django_pgqueue.monitoring.overview.formatting import span
from django_pgqueue.monitoring.overview.workers import workers
from django_pgqueue.values.times import to_epoch_ms
from django_pgqueue.worker.upkeep import bloat

if TYPE_CHECKING:
    from django_pgqueue.functions import Parked
    from django_pgqueue.monitoring.overview.counts import Count
    from django_pgqueue.monitoring.overview.formatting import Words
    from django_pgqueue.monitoring.overview.long_transactions import Pinned
    from django_pgqueue.monitoring.overview.throughput import Pulse
    from django_pgqueue.monitoring.overview.workers import Workers
    from django_pgqueue.worker.upkeep.bloat import Bloated

NEXT_SCHEDULES = 5
MAX_LINES, MAX_UNKNOWN, MAX_PARKED, MAX_REASON_CHARS = 50, 10, 1000, 300
"""So many tasks of parked messages are listed, and so many messages of each are counted."""
MAX_WAIT_MS = 10**14
"""A row that was written by hand may be unknown since long before the calendar begins."""
WINDOW_HOURS = int(pulse.WINDOW.total_seconds() // 3600)


@dataclass(frozen=True, slots=True, kw_only=True)
class Paused:
    queue: str
    since: dt.datetime
    by: str | None

    def words(self, _: dt.datetime) -> Words:
        return "Queue {} is paused since {} by {}.", self.queue, self.since, self.by or "somebody"


@dataclass(frozen=True, slots=True, kw_only=True)
class QueueOverview:
    name: str
    count: Count
    pulse: Pulse | None
    """None: nothing has ended in the last hours."""
    paused: Paused | None
    has_no_worker: bool
    """Tasks are ready, and no living worker would take them."""

    @property
    def is_capped(self) -> bool:
        one = self.count
        return any(count.is_capped for count in (one.ready, one.scheduled, one.after_others, one.running, one.failed))


@dataclass(frozen=True, slots=True, kw_only=True)
class UnknownTask:
    """Messages that the workers that have claimed them do not know."""

    task: str
    queue: str
    count: Capped
    wait: dt.timedelta
    reason: str

    @classmethod
    def of(cls, parked: Parked, now: dt.datetime) -> UnknownTask:
        return cls(
            task=parked.task,
            queue=parked.queue,
            count=Capped.of(parked.messages, MAX_PARKED),
            wait=dt.timedelta(milliseconds=min(MAX_WAIT_MS, max(0, to_epoch_ms(now) - (parked.unknown_since or 0)))),
            reason=(parked.reason or "")[:MAX_REASON_CHARS],
        )

    def __str__(self) -> str:
        wait = "waits" if self.count.value == 1 else "wait"
        return (
            f"{self.count} of {self.task} in the queue {self.queue} {wait} for a worker that knows the task, the first "
            f"for {span(self.wait)}: {self.reason}"
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Overview:
    at: dt.datetime
    queues: list[QueueOverview]
    more_queues: bool
    is_exact: bool
    """Whether the ended attempts were counted, and not estimated."""
    workers: Workers
    schedules: list[Schedule]
    pinned: list[Pinned]
    bloated: list[Bloated]
    unknown: list[UnknownTask]


def taken(using: str, *, at: dt.datetime | None = None, queues: list[str] | None = None) -> Overview:
    """Returns the overview of a database, or of some of its queues.  Call it within ``bounded(using)``."""
    now = at or functions.now(connections[using])
    pulses = pulse.taken(now, using=using)
    held, failed = counts.held(now, using=using), counts.failed(now, using=using)
    states = paused(using=using)
    waiting, lanes = counts.waiting_queues(using=using), counts.lanes(using=using)
    names = queues or sorted({*waiting, *(lane.queue for lane in lanes), *held, *failed, *states, *pulses.queues})
    shown = names[: counts.QUEUES]
    found = counts.of(shown, now, held, failed, lanes, using=using)
    service = Service.at(now, using=using)
    return Overview(
        at=now,
        queues=[
            QueueOverview(
                name=name,
                count=found[name],
                pulse=pulses.queues.get(name),
                paused=states.get(name),
                has_no_worker=found[name].tasks_are_ready and not service.serves(name),
            )
            for name in shown
        ],
        more_queues=len(names) > counts.QUEUES,
        is_exact=pulses.is_exact,
        workers=workers(now, using=using),
        schedules=schedules(using=using),
        pinned=long_transactions.pinned(using=using),
        bloated=list(bloat.found(connections[using])),
        unknown=unknown(now, using=using),
    )


def unknown(now: dt.datetime, *, using: str) -> list[UnknownTask]:
    """Returns the first tasks that have parked messages which no worker knew.  Those that are only left to workers of a
    later version wait as others do.
    """
    parked = functions.message_parked(connections[using], limit=MAX_LINES, count=MAX_PARKED + 1)
    return [UnknownTask.of(one, now) for one in parked if one.unknown_since is not None][:MAX_UNKNOWN]


def paused(*, using: str) -> dict[str, Paused]:
    states = QueueState.objects.using(using).filter(paused_at__isnull=False).order_by("name")
    rows = states.values_list("name", Moment("paused_at"), "paused_by")[: counts.QUEUES]
    return {name: Paused(queue=name, since=since, by=by) for name, since, by in rows}


def schedules(*, using: str) -> list[Schedule]:
    coming = Schedule.objects.using(using).filter(paused_at__isnull=True).order_by("next_at", "name")
    return list(coming.only("name", "task", "next_at")[:NEXT_SCHEDULES])
