"""The overview of a database at one moment."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from django.db import connections
from django.utils.translation import gettext

from django_pgqueue import functions
from django_pgqueue.models.tables import QueueState, Schedule
from django_pgqueue.monitoring.overview import (
    counts,
    failing,
    failing_schedules,
    failures,
    host,
    long_transactions,
    overdue,
    quarantined,
    recent,
    suspended,
    throughput as pulse,
    trend,
    unknown,
)
from django_pgqueue.monitoring.overview.clamped import Moment
from django_pgqueue.monitoring.overview.coverage import Service
from django_pgqueue.monitoring.overview.limits import set_for
from django_pgqueue.monitoring.overview.queries import PINNED
from django_pgqueue.monitoring.overview.workers import workers
from django_pgqueue.worker.upkeep import bloat

if TYPE_CHECKING:
    import datetime as dt

    from django_pgqueue.monitoring.overview.counts import Count
    from django_pgqueue.monitoring.overview.failing import Failing
    from django_pgqueue.monitoring.overview.failing_schedules import FailingSchedule
    from django_pgqueue.monitoring.overview.failures import Failures
    from django_pgqueue.monitoring.overview.formatting import Words
    from django_pgqueue.monitoring.overview.host import Disk
    from django_pgqueue.monitoring.overview.long_transactions import Pinned
    from django_pgqueue.monitoring.overview.overdue import Overdue
    from django_pgqueue.monitoring.overview.quarantined import QuarantinedTask
    from django_pgqueue.monitoring.overview.recent import Recent
    from django_pgqueue.monitoring.overview.suspended import SuspendedTasks
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
        words = gettext("Queue {} is paused since {} by {}.")
        return words, self.queue, self.since, self.by or gettext("somebody")


@dataclass(frozen=True, slots=True, kw_only=True)
class QueueOverview:
    name: str
    count: Count
    failures: Failures
    pulse: Pulse | None
    """None: nothing has ended in the last hours."""
    last_hour: Recent | None
    """From the roll-up; None: it has nothing."""
    growth: float | None
    """Messages a minute by which its backlog grows; None: it is not known."""
    paused: Paused | None
    has_no_worker: bool
    """Tasks are ready, and no living worker would take them."""

    @property
    def is_exact(self) -> bool:
        """Whether all figures of the queue were counted, and none is an estimate."""
        one = self.count
        figures = (one.ready, one.scheduled, one.after_others, one.running, one.expired, *self.failures)
        return all(figure.is_exact for figure in figures)


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
    suspended: SuspendedTasks
    failing: list[Failing]
    failing_schedules: list[FailingSchedule]
    quarantined: list[QuarantinedTask]
    overdue: Overdue | None
    disks: list[Disk]
    """Of the server, if it runs on this host, and nearly full."""
    clock_ahead: dt.timedelta | None
    """Of this host, beside the server's.  None: by very little."""


def taken(using: str, *, at: dt.datetime | None = None, queues: list[str] | None = None) -> Overview:
    """Returns the overview of a database, or of some of its queues.  Call it within ``bounded(using)``."""
    now = at or functions.now(connections[using])
    with set_for(using, PINNED):
        pulses = pulse.taken(now, using=using)
        failed, states = failures.taken(now, using=using), paused(queues, using=using)
        others = {*failed, *states, *pulses.queues}
        look = counts.taken(now, wanted=queues or others, using=using)
        names = set(queues) if queues else look.names | others
        shown = look.chosen(names, first=states)
        found = counts.of(shown, look, using=using)
    last_hour = recent.queues(now, named=shown, using=using)
    service = Service.at(now, using=using)
    return Overview(
        at=now,
        queues=[
            QueueOverview(
                name=name,
                count=found[name],
                failures=failed[name],
                pulse=pulses.queues.get(name),
                last_hour=last_hour.get(name),
                growth=trend.a_minute(name, look.census, pulses),
                paused=states.get(name),
                has_no_worker=found[name].tasks_are_ready and not service.serves(name),
            )
            for name in shown
        ],
        more_queues=len(names) > counts.QUEUES or (look.more and not queues),
        is_exact=pulses.is_exact,
        workers=workers(now, using=using),
        schedules=schedules(using=using),
        pinned=long_transactions.pinned(using=using),
        bloated=list(bloat.found(connections[using])),
        unknown=unknown.tasks(now, using=using),
        suspended=suspended.taken(now, using=using),
        failing=[one for one in failing.taken(now, using=using) if not queues or one.queue in names],
        failing_schedules=failing_schedules.found(using=using),
        quarantined=quarantined.tasks(using=using),
        overdue=overdue.found(using=using),
        disks=host.filling_disks(using=using),
        clock_ahead=host.clock_ahead(using=using),
    )


def paused(queues: list[str] | None = None, *, using: str) -> dict[str, Paused]:
    states = QueueState.objects.using(using).filter(paused_at__isnull=False).order_by("name")
    if queues:
        states = states.filter(name__in=queues)
    rows = states.values_list("name", Moment("paused_at"), "paused_by")[: counts.QUEUES]
    return {name: Paused(queue=name, since=since, by=by) for name, since, by in rows}


def schedules(*, using: str) -> list[Schedule]:
    coming = Schedule.objects.using(using).filter(paused_at__isnull=True).order_by("next_at", "name")
    return list(coming.only("name", "task", "next_at")[:NEXT_SCHEDULES])
