"""The metrics of the queue: its overview as metric families.

They are the numbers of the overview, and cost as much.
"""

from __future__ import annotations

import logging
import time
from typing import TYPE_CHECKING

from django.db import DatabaseError, InterfaceError, connections
from prometheus_client.core import GaugeMetricFamily

from django_pgqueue import functions
from django_pgqueue.exceptions import OutdatedQueue
from django_pgqueue.monitoring import overview
from django_pgqueue.monitoring.overview.suspended import KINDS

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from prometheus_client import Metric

    from django_pgqueue.functions import FailureAlert, LakeRow
    from django_pgqueue.monitoring.overview import Overview

logger = logging.getLogger("django_pgqueue.metrics")

STATEMENT_TIMEOUT = "2s"
"""Prometheus waits for ten seconds, and scrapes again soon."""
STATES = ("ready", "scheduled", "after_others", "running", "expired")


class Gauges:
    """Families by name; the first sample creates its family."""

    def __init__(self) -> None:
        self.families: dict[str, GaugeMetricFamily] = {}

    def add(self, name: str, about: str, value: float | None, **labels: str) -> None:
        if name not in self.families:
            self.families[name] = GaugeMetricFamily(f"pgqueue_{name}", about, labels=list(labels))
        if value is not None:
            self.families[name].add_metric(list(labels.values()), float(value))


def families(databases: Iterable[str]) -> Iterator[Metric]:
    """Yields the metrics of the databases.  One that does not answer is reported as down, beside the others."""
    gauges = Gauges()
    for database in databases:
        began = time.monotonic()
        try:
            with overview.bounded(database, timeout=STATEMENT_TIMEOUT):
                found = overview.taken(database)
                lakes = functions.lakes(connections[database])
                alerts = functions.failure_alerts(connections[database])
        except (DatabaseError, InterfaceError, OutdatedQueue) as error:
            logger.warning("The queue in the database %r cannot be read: %s", database, error)
            if not connections[database].in_atomic_block:  # Django would close it, and the transaction with it
                connections[database].close_if_unusable_or_obsolete()
            up = False
        else:
            of_queues(gauges, database, found)
            of_workers(gauges, database, found)
            of_lakes(gauges, database, lakes)
            of_report(gauges, database, alerts)
            up = True
        gauges.add("up", "Whether the queue could be read.", up, database=database)
        gauges.add("look_seconds", "How long reading the queue took.", time.monotonic() - began, database=database)
    yield from gauges.families.values()


def of_queues(gauges: Gauges, database: str, found: Overview) -> None:
    for one in found.queues:
        labels = {"database": database, "queue": one.name}
        for state in STATES:
            count = getattr(one.count, state).value
            gauges.add(
                "messages",
                "Messages by state: counted, or estimated if there are very many.",
                count,
                **labels,
                state=state,
            )
        gauges.add(
            "estimated",
            "Whether a number of messages of this queue is an estimate.",
            not one.is_exact,
            **labels,
        )
        oldest = one.count.oldest.total_seconds() if one.count.oldest is not None else 0.0
        gauges.add("oldest_ready_seconds", "How long the first ready message has been ready.", oldest, **labels)
        gauges.add("paused", "Whether a user has paused the queue.", one.paused is not None, **labels)
        gauges.add(
            "unserved", "Whether tasks are ready and no living worker serves the queue.", one.has_no_worker, **labels
        )
        gauges.add(
            "failed_last_hour",
            "Messages that failed for good in the last hour.",
            one.failures.of_an_hour.value,
            **labels,
        )
        ended = 0.0 if one.pulse is None else one.pulse.a_minute
        gauges.add("attempts_per_minute", "Attempts that ended in the last ten minutes, estimated.", ended, **labels)
        wait = None if one.pulse is None or one.pulse.latest_wait is None else one.pulse.latest_wait.total_seconds()
        gauges.add("wait_seconds", "Newest median of the times from ready to begun, from a sample.", wait, **labels)
    for queue in dict.fromkeys([*(one.name for one in found.queues), *found.unknown.waits]):
        longest = found.unknown.waits.get(queue)
        gauges.add(
            "parked_messages",
            "Messages whose task or arguments no worker has known yet, counted up to a limit.",
            sum(one.count.value for one in found.unknown.newest if one.queue == queue),
            database=database,
            queue=queue,
        )
        gauges.add(
            "oldest_parked_seconds",
            "For how long the first of these messages has been unknown.",
            0.0 if longest is None else longest.total_seconds(),
            database=database,
            queue=queue,
        )
    for queue, kinds in found.suspended.queues.items():
        for kind in KINDS:
            gauges.add(
                "suspended_messages",
                "Durable tasks that wait for an event, a decision, a time or their children, counted up to a limit.",
                kinds.get(kind, 0),
                database=database,
                queue=queue,
                wait_for=kind,
            )
    gauges.add(
        "queues_left_out", "Whether the database has more queues than are shown.", found.more_queues, database=database
    )


def of_workers(gauges: Gauges, database: str, found: Overview) -> None:
    workers = found.workers
    states = {
        "busy": workers.busy,
        "idle": workers.idle,
        "silent": len(workers.silent),
        "listening": workers.listeners,
    }
    for state, count in states.items():
        about = "Processes that run tasks, and those that listen for raw messages."
        gauges.add("workers", about, count, database=database, state=state)
    gauges.add("slots", "Jobs that can run at a time, on all living workers.", workers.slots, database=database)
    oldest = max((pinned.age.total_seconds() for pinned in found.pinned), default=0.0)
    gauges.add(
        "pinned_snapshot_seconds",
        "Age of the oldest transaction that keeps dead rows alive; 0: no transaction is old.",
        oldest,
        database=database,
    )


def of_lakes(gauges: Gauges, database: str, lakes: Iterable[LakeRow]) -> None:
    for lake in lakes:
        labels = {"database": database, "lake": lake.location}
        lag = "Time since this lake was last exported up to the end of the history."
        gauges.add("lake_lag_seconds", lag, lake.lag_seconds, **labels)
        missed = "Attempts that retention dropped before this lake had them."
        gauges.add("lake_missed_attempts", missed, lake.missed_attempts, **labels)


def of_report(gauges: Gauges, database: str, alerts: Iterable[FailureAlert]) -> None:
    about = "Messages that failed in the last reported hour, of tasks that failed unusually often in it."
    for alert in alerts:
        if alert.is_newest:
            labels = {"database": database, "queue": alert.queue, "task": alert.task or ""}
            gauges.add("unusual_failures", about, alert.failed, **labels)
