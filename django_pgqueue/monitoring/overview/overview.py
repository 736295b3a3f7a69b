"""The overview of a database at one moment."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from django.db import connections

from django_pgqueue import functions
from django_pgqueue.models.tables import QueueState, Schedule
from django_pgqueue.monitoring.overview import counts, long_transactions, throughput as pulse, unknown
from django_pgqueue.monitoring.overview.clamped import Moment
from django_pgqueue.monitoring.overview.coverage import Service
from django_pgqueue.monitoring.overview.workers import workers
from django_pgqueue.worker.upkeep import bloat

if TYPE_CHECKING:
    import datetime as dt

    from django_pgqueue.monitoring.overview.counts import Count
    from django_pgqueue.monitoring.overview.formatting import Words
    from django_pgqueue.monitoring.overview.long_transactions import Pinned
    from django_pgqueue.monitoring.overview.throughput import Pulse
    from django_pgqueue.monitoring.overview.unknown import UnknownTasks
    from django_pgqueue.monitoring.overview.workers import Workers
    from django_pgqueue.worker.upkeep.bloat import Bloated

NEXT_SCHEDULES = 5
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
    unknown: UnknownTasks


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
        unknown=unknown.tasks(now, using=using),
    )


def paused(*, using: str) -> dict[str, Paused]:
    states = QueueState.objects.using(using).filter(paused_at__isnull=False).order_by("name")
    rows = states.values_list("name", Moment("paused_at"), "paused_by")[: counts.QUEUES]
    return {name: Paused(queue=name, since=since, by=by) for name, since, by in rows}


def schedules(*, using: str) -> list[Schedule]:
    coming = Schedule.objects.using(using).filter(paused_at__isnull=True).order_by("next_at", "name")
    return list(coming.only("name", "task", "next_at")[:NEXT_SCHEDULES])
