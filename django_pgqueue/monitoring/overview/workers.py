"""The workers: busy, idle, and silent ones."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from django_pgqueue.models.tables import Worker
from django_pgqueue.monitoring.overview.clamped import Moment
from django_pgqueue.monitoring.overview.coverage import MAX_WORKERS, is_silent, silence
from django_pgqueue.monitoring.overview.held import HeldCounts, runs
from django_pgqueue.values.versions import key

if TYPE_CHECKING:
    import datetime as dt

    from django_pgqueue.monitoring.overview.capped import Capped
    from django_pgqueue.monitoring.overview.held import CurrentRun

SHOWN = 8


@dataclass(frozen=True, slots=True, kw_only=True)
class Silent:
    """A worker that has sent no heartbeat for a while and did not sign off: it died, or lost the network."""

    id: str
    hostname: str
    pid: int
    silence: dt.timedelta


@dataclass(frozen=True, slots=True, kw_only=True)
class AtWork:
    """A living worker, and what it runs."""

    id: str
    hostname: str
    queues: list[str] | None
    """None: all."""
    version: str | None
    ordered: str | None
    """Whether a person has ordered it to "pause" or to "stop"."""
    slots: int
    used: int
    runs: list[CurrentRun]
    """The longest first."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Workers:
    """Processes that run tasks, and the number of those that listen for raw messages."""

    busy: int
    """They hold at least one message."""
    idle: int
    slots: int
    used_slots: Capped
    listeners: int
    silent: list[Silent]
    more: bool
    """Whether there are other rows of workers, which were seen longer ago."""
    shown: list[AtWork]
    """Those that run most come first."""
    versions: dict[str, int]
    """How many processes run each version of a deploy; empty where none has a version."""


def workers(now: dt.datetime, *, using: str) -> Workers:
    rows = list(
        Worker.objects.using(using)
        .order_by("-seen_at")
        .values_list(
            "id",
            "hostname",
            "pid",
            "slots",
            "tasks",
            "asleep_until",
            Moment("seen_at"),
            "version",
            "silent_until",
            "queues",
            "ordered",
        )[: MAX_WORKERS + 1]
    )
    more = len(rows) > MAX_WORKERS
    del rows[MAX_WORKERS:]
    alive = [row for row in rows if not is_silent(row[6], row[8], now)]
    ours = [row for row in alive if row[4]]
    held = HeldCounts.at(now, using=using) if ours else HeldCounts({})
    busy = sum(held.is_busy(row[0], row[5], now) for row in ours)
    return Workers(
        busy=busy,
        idle=len(ours) - busy,
        slots=sum(row[3] for row in ours),
        used_slots=held.used({row[0]: row[3] for row in ours}),
        shown=_at_work(ours, held, now, using=using),
        listeners=len(alive) - len(ours),
        silent=[
            Silent(id=row[0], hostname=row[1], pid=row[2], silence=silence(row[6], now))
            for row in rows
            if row[4] and is_silent(row[6], row[8], now)
        ],
        more=more,
        versions=_versions([row[7] for row in ours]),
    )


def _at_work(rows: list[Any], held: HeldCounts, now: dt.datetime, *, using: str) -> list[AtWork]:
    first = sorted(rows, key=lambda row: (-min(held.by(row[0]), row[3]), row[1], row[0]))[:SHOWN]
    running = runs([row[0] for row in first if held.by(row[0])], now, using=using)
    return [
        AtWork(
            id=row[0], hostname=row[1], queues=row[9], version=row[7], ordered=row[10], slots=row[3],
            used=min(held.by(row[0]), row[3]), runs=running.get(row[0], [])[: row[3]],
        )
        for row in first
    ]  # fmt: skip


def _versions(found: list[str | None]) -> dict[str, int]:
    """Counts the versions, the latest first.  Processes without one are not counted."""
    counted = Counter(version for version in found if version is not None)
    return {version: counted[version] for version in sorted(counted, key=key, reverse=True)}
