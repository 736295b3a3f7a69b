"""The metrics of one worker: of all its processes, including those that have exited."""

from __future__ import annotations

from itertools import accumulate
from typing import TYPE_CHECKING

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily

from django_pgqueue.metrics.exposition import encoded
from django_pgqueue.worker.health.counters import Counters, Histogram

if TYPE_CHECKING:
    from collections.abc import Iterator

    from prometheus_client import Metric

    from django_pgqueue.worker.health.shared_state import SharedState
    from django_pgqueue.worker.health.status import Health
    from django_pgqueue.worker.settings import WorkerSettings

STATES = ("working", "starting", "disconnected", "stopping", "retiring", "stuck", "broken", "blocked", "gone")


def exposed(board: SharedState, health: Health, settings: WorkerSettings, *, accept: str) -> tuple[str, bytes]:
    tally = Counters()
    for place in board.places:
        tally.plus(Counters(place.read()))
    families = [*of_jobs(tally), *of_claims(tally), *of_processes(board, health, settings)]
    return encoded(families, accept=accept)


def of_jobs(tally: Counters) -> Iterator[Metric]:
    attempts = CounterMetricFamily(
        "pgqueue_worker_attempts", "Attempts that have ended, by outcome.", labels=("task", "queue", "status")
    )
    run = HistogramMetricFamily("pgqueue_worker_run_seconds", "How long attempts ran.", labels=("task", "queue"))
    wait = HistogramMetricFamily(
        "pgqueue_worker_wait_seconds",
        "How long messages had been ready before their attempts began.",
        labels=("task", "queue"),
    )
    for (task, queue), series in sorted(tally.series.items()):
        for status, count in sorted(series.statuses.items()):
            attempts.add_metric((task, queue, status), count)
        add(run, series.run, task, queue)
        add(wait, series.wait, task, queue)
    yield from (attempts, run, wait)


def of_claims(tally: Counters) -> Iterator[Metric]:
    seconds = HistogramMetricFamily(
        "pgqueue_worker_claim_seconds", "How long dequeues took, without the wait for their turn."
    )
    claimed = HistogramMetricFamily(
        "pgqueue_worker_claimed_messages", "Number of messages of each dequeue that found any."
    )
    recorded = HistogramMetricFamily(
        "pgqueue_worker_recorded_attempts", "Number of attempts that one transaction recorded."
    )
    add(seconds, tally.claim_seconds)
    add(claimed, tally.claimed)
    add(recorded, tally.recorded)
    yield from (seconds, claimed, recorded)
    yield CounterMetricFamily("pgqueue_worker_empty_claims", "Dequeues that found nothing.", value=tally.empty_claims)
    yield CounterMetricFamily(
        "pgqueue_worker_reconnects", "How often the worker lost the database and reconnected.", value=tally.reconnects
    )


def of_processes(board: SharedState, health: Health, settings: WorkerSettings) -> Iterator[Metric]:
    states = GaugeMetricFamily("pgqueue_worker_processes", "Processes of this worker, by state.", labels=("state",))
    found = [process["state"] for process in health.processes]
    for state in STATES:
        states.add_metric((state,), found.count(state))
    yield states
    yield GaugeMetricFamily("pgqueue_worker_slots", "Jobs that can run at a time.", value=slots(settings))
    yield GaugeMetricFamily(
        "pgqueue_worker_held_messages",
        "Messages that the worker has claimed and that have not ended.",
        value=sum(process["running"] for process in health.processes),
    )
    exits = CounterMetricFamily(
        "pgqueue_worker_process_exits", "Processes that the worker has replaced.", labels=("reason",)
    )
    exits.add_metric(("crashed",), board.supervisor.crashed)
    exits.add_metric(("recycled",), board.supervisor.recycled)
    yield exits


def slots(settings: WorkerSettings) -> int:
    return settings.processes * settings.threads


def add(family: HistogramMetricFamily, histogram: Histogram, *labels: str) -> None:
    bounds = [*(f"{float(bound)}" for bound in histogram.bounds), "+Inf"]
    family.add_metric(labels, list(zip(bounds, accumulate(histogram.counts), strict=True)), histogram.total)
