"""Runs the checks one after the other: if one of them fails, the others still report their findings."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import psycopg
from django.db import Error, OperationalError, connections

from django_pgqueue import functions
from django_pgqueue.exceptions import OutdatedQueue
from django_pgqueue.monitoring.doctor import (
    clocks,
    disks,
    durable,
    history,
    installation,
    locks,
    platform,
    pooler,
    schedules,
    server,
    snapshots,
    tables,
    workers,
)
from django_pgqueue.monitoring.doctor.finding import Finding, Kind, Severity
from django_pgqueue.monitoring.overview.limits import bounded

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from django_pgqueue.monitoring.doctor.subject import Subject

COULD_NOT_LOOK = Kind(
    "could-not-look",
    Severity.WARNING,
    "This check lacked a right or a part of the queue, or took too long. If no other finding says what to do, run the "
    "command as a role that has the right, or at a time with less load.",
)


@dataclass(frozen=True, slots=True)
class Check:
    title: str
    look: Callable[[Subject], Iterator[Finding]]
    needs_queue: bool = True
    decides: bool = False
    """Whether a finding says why all other checks would fail.  They are skipped then."""
    writes: bool = False


CHECKS = (
    Check("server", platform.product, needs_queue=False, decides=True),
    Check("transactions", platform.transactions, needs_queue=False, decides=True),
    Check("times", platform.dates, needs_queue=False, decides=True),
    Check("read-only server", platform.writable, needs_queue=False),
    Check("disks", disks.full, needs_queue=False),
    Check("rights to the queue", platform.rights),
    Check("row-level security", platform.row_security),
    Check("functions with the rights of their owner", platform.open_functions),
    Check("migrations", installation.migrations, needs_queue=False),
    Check("release of the queue", installation.release),
    Check("search path of the functions", installation.pins),
    Check("tables, functions, indexes and triggers", installation.parts, writes=True),
    Check("rights of this role", snapshots.sight, needs_queue=False),
    Check("old transactions", snapshots.transactions, needs_queue=False),
    Check("prepared transactions", snapshots.prepared_transactions, needs_queue=False),
    Check("replication slots", snapshots.replication_slots, needs_queue=False),
    Check("standbys", snapshots.standbys, needs_queue=False),
    Check("locks", locks.held),
    Check("commits", locks.commits, needs_queue=False),
    Check("workers", workers.dead_workers),
    Check("queues without a worker", workers.idle_queues),
    Check("expired messages", workers.expired_messages),
    Check("problems of workers", workers.worker_problems),
    Check("long-running messages", workers.long_held),
    Check("messages that wait for others", workers.overdue_looks),
    Check("missed ends", workers.missed_ends),
    Check("schedules that fail", schedules.failing),
    Check("schedules that are due too late", schedules.late),
    Check("schedules of several versions", schedules.versions),
    Check("jobs that kill workers", workers.poison_jobs),
    Check("unknown tasks", workers.unknown_tasks),
    Check("parked messages", workers.parked_messages),
    Check("awaited events", durable.awaited_events),
    Check("missed events", durable.missed_events),
    Check("steps that are not asked for", durable.unasked_steps),
    Check("channels", workers.miscounted_channels),
    Check("partitions", history.partitions),
    Check("default partition", history.default_partition),
    Check("old history", history.overdue),
    Check("lakes", history.lakes),
    Check("statistics", tables.unanalysed),
    Check("bloat", tables.bloated),
    Check("invalid indexes", tables.invalid_indexes),
    Check("unlogged tables", tables.unlogged),
    Check("collation", tables.collation, needs_queue=False),
    Check("sequences", tables.sequences),
    Check("known ids", tables.sequences_behind),
    Check("wraparound", tables.wraparound),
    Check("settings", server.settings),
    Check("connections", server.connections),
    Check("notification queue", server.notification_queue),
    Check("pooler", pooler.mode, needs_queue=False),
    Check("clocks", clocks.difference, needs_queue=False),
)


def examine(patient: Subject, *, progress: Callable[[str], None] = lambda _: None) -> list[Finding]:
    """Returns the findings, the worst first."""
    for check in CHECKS:
        if check.decides:
            progress(check.title)
            if found := list(check.look(patient)):
                return found
    return sorted(_checked(patient, progress), key=lambda finding: -finding.severity)


def _checked(patient: Subject, progress: Callable[[str], None]) -> list[Finding]:
    has_queue = patient.has_queue
    found: list[Finding] = []
    for check in CHECKS:
        if not check.decides:
            progress(check.title)
            may_write = not any(
                finding.name == platform.READ_ONLY.name or disks.leaves_no_room(finding) for finding in found
            )
            if (has_queue or not check.needs_queue) and (may_write or not check.writes):
                found += looked(check, patient)
    if not has_queue:
        found += looked(Check("schemas", platform.hidden), patient) or [
            installation.MISSING_TABLE.found(
                f"The database {patient.using!r} has no tables of the queue: the other checks were skipped.",
                f"python manage.py migrate --database {patient.using}",
            )
        ]
    return found


def looked(check: Check, patient: Subject) -> list[Finding]:
    try:
        with bounded(patient.using):
            return list(check.look(patient))
    except Error as error:
        if isinstance(error, OperationalError) and not connections[patient.using].is_usable():
            connections[patient.using].close()
            raise
        return [could_not_look(check, error)]
    except OutdatedQueue as error:
        there = functions.installed_queue(connections[patient.using])
        is_told = there is not None and there.is_outdated  # by outdated-queue
        # What lacks may be that of somebody's trigger, which no migration makes.
        return [] if is_told else [could_not_look(check, error.__cause__ or error)]
    except psycopg.Error as error:  # of a connection besides Django's
        return [could_not_look(check, error)]


def could_not_look(check: Check, error: BaseException) -> Finding:
    reason = str(error).strip().partition("\n")[0]
    return COULD_NOT_LOOK.found(f"{check.title[0].upper()}{check.title[1:]}: {reason}", "", check=check.title)
