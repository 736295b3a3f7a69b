"""Messages come and go at the same time, at 70 % of what this machine can do, and how long they wait."""

from __future__ import annotations

import time
from statistics import median
from typing import TYPE_CHECKING

from django.db import transaction

from django_pgqueue.backend import bulk
from tests.bench import database, speed, tasks, workers
from tests.bench.figures import Series, percentile
from tests.bench.pickup import add

if TYPE_CHECKING:
    from tests.bench.bench import Bench
    from tests.bench.tally import Tally

SHARE = 0.7
CAPACITY = "capacity, enqueueing included"
CHUNK_SECONDS = 0.05
MIN_CALIBRATION_SECONDS, MAX_CALIBRATION_SECONDS = 4.0, 60.0
"""A tenth of the run, if that is between them: what vacuum takes is part of what a machine can do, and begins late."""


def steady(bench: Bench) -> None:
    calibration = min(MAX_CALIBRATION_SECONDS, max(MIN_CALIBRATION_SECONDS, bench.sizes.seconds / 10))
    with speed.watched() as watched:
        calibrating = time.monotonic()
        capacity = calibrated(calibration)
        bench.rate(CAPACITY, capacity)
        begun = time.monotonic()
        chunk = max(1, int(capacity * SHARE * CHUNK_SECONDS))
        chunks = int(bench.sizes.seconds / CHUNK_SECONDS)
        late, waits = run_steadily(chunk, chunks)
        ended = time.monotonic()
        bench.rate("capacity afterwards", calibrated(calibration), limit=CAPACITY)
    rate = chunk * chunks / (bench.sizes.seconds + max(0.0, late))
    bench.rate("enqueued and run", rate, limit=CAPACITY)
    add(bench, "wait", waits)
    per_second = int(chunk / CHUNK_SECONDS)
    minutes = [percentile(waits[at : at + 60 * per_second], 0.5) for at in range(0, len(waits), 60 * per_second)]
    bench.add("wait: p50 of the best minute", min(minutes), "ms")
    bench.add("wait: p50 of the worst minute", max(minutes), "ms")
    add_speed(bench, watched, calibrating, begun, ended)
    if bench.first:
        bench.figures.series += over_time(bench.workload, waits, per_second=per_second)
        points = [(at - begun, ms) for at, ms in watched.measured if begun <= at < ended]
        bench.figures.series.append(Series(bench.workload, "processor time of a fixed loop", "second", "ms", points))


def run_steadily(chunk: int, chunks: int) -> tuple[float, list[float]]:
    """How many seconds the last enqueue was late, and how long each job waited, in ms."""
    database.empty()
    with workers.tallied(marks=chunk * chunks) as tally, workers.workers():
        begun = time.monotonic_ns()
        committing = enqueue_steadily(chunk, chunks)
        late = (time.monotonic_ns() - begun) / 1e9 - chunks * CHUNK_SECONDS
        workers.wait_for(lambda: tally.count >= chunk * chunks, "the last jobs")
        return late, waits_of(tally, committing, chunk)


def add_speed(bench: Bench, watched: speed.Speed, calibrating: float, begun: float, ended: float) -> None:
    """A run whose minutes are slower than its calibration is one at more than 70 % of what can be done in them."""
    before, minutes = watched.between(calibrating, begun), watched.minutes(begun, ended)
    if not before or not minutes:  # a run of a moment
        return
    bench.add("fixed loop: at calibration", median(before), "ms")
    bench.add("fixed loop: fastest minute", min(minutes), "ms", limit="fixed loop: at calibration")
    bench.add("fixed loop: slowest minute", max(minutes), "ms", limit="fixed loop: at calibration")


def calibrated(seconds: float) -> float:
    """How many a worker ends in a second while somebody enqueues more than it can do."""
    database.empty()
    database.fill(2000, tasks.noop)
    with workers.tallied() as tally, workers.workers():
        workers.wait_for(lambda: tally.count > 0, "the first job")
        number, begun, ended = 0, time.monotonic(), tally.count
        while time.monotonic() - begun < seconds:
            if number - tally.count < 4000:
                bulk.enqueue_many(tasks.noop, [-1] * 1000)
                number += 1000
            else:
                time.sleep(0.002)
        return (tally.count - ended) / (time.monotonic() - begun)


def enqueue_steadily(chunk: int, chunks: int) -> list[int]:
    """When the commit of each chunk started."""
    begun, committing = time.monotonic(), []
    for number in range(chunks):
        time.sleep(max(0.0, begun + number * CHUNK_SECONDS - time.monotonic()))
        with transaction.atomic():
            bulk.enqueue_many(tasks.noop, range(number * chunk, (number + 1) * chunk))
            committing.append(time.monotonic_ns())
    return committing


def waits_of(tally: Tally, committing: list[int], chunk: int) -> list[float]:
    """In milliseconds, in the order of the enqueues."""
    return [(began - committing[number // chunk]) / 1e6 for number, began in enumerate(tally.marks())]


def over_time(workload: str, waits: list[float], per_second: int) -> list[Series]:
    seconds = [waits[at : at + per_second] for at in range(0, len(waits), per_second)]
    return [
        Series(
            workload, f"wait, {name}", "second", "ms", [(n, percentile(part, share)) for n, part in enumerate(seconds)]
        )
        for name, share in (("p50", 0.5), ("p99", 0.99), ("max", 1.0))
    ]
