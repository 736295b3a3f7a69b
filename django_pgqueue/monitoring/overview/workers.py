"""The workers: busy, idle, and silent ones."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from django_pgqueue.models.tables import Worker
from django_pgqueue.monitoring.overview.clamped import Moment
from django_pgqueue.monitoring.overview.coverage import MAX_WORKERS, SILENT_AFTER
from django_pgqueue.values.times import to_epoch_ms

if TYPE_CHECKING:
    import datetime as dt


@dataclass(frozen=True, slots=True, kw_only=True)
class Silent:
    """A worker that has sent no heartbeat for a while and did not sign off: it died, or lost the network."""

    id: str
    hostname: str
    pid: int
    silence: dt.timedelta


@dataclass(frozen=True, slots=True, kw_only=True)
class Workers:
    """Processes that run tasks, and the number of those that listen for raw messages."""

    awake: int
    asleep: int
    slots: int
    listeners: int
    silent: list[Silent]


def workers(now: dt.datetime, *, using: str) -> Workers:
    rows = list(
        Worker.objects.using(using)
        .order_by("-seen_at")
        .values_list("id", "hostname", "pid", "slots", "tasks", "asleep_until", Moment("seen_at"))[:MAX_WORKERS]
    )
    alive = [row for row in rows if row[6] > now - SILENT_AFTER]
    ours = [row for row in alive if row[4]]
    asleep = [row for row in ours if row[5] is not None and to_epoch_ms(row[5]) > to_epoch_ms(now)]
    return Workers(
        awake=len(ours) - len(asleep),
        asleep=len(asleep),
        slots=sum(row[3] for row in ours),
        listeners=len(alive) - len(ours),
        silent=[
            Silent(id=row[0], hostname=row[1], pid=row[2], silence=now - row[6])
            for row in rows
            if row[4] and row[6] <= now - SILENT_AFTER
        ],
    )
