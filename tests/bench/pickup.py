"""How soon an idle worker begins a job, and what its idling costs."""

from __future__ import annotations

import random
import time
from typing import TYPE_CHECKING

from django.db import connection, transaction

from tests.bench import database, limits, listener, processes, tasks, workers
from tests.bench.figures import percentile
from tests.bench.meter import Meter

if TYPE_CHECKING:
    from tests.bench.bench import Bench
    from tests.bench.tally import Tally

RAW = "raw loop that listens"
SETTLING_SECONDS = 1.0
SHARES = {"p50": 0.5, "p95": 0.95, "p99": 0.99, "max": 1.0}


def latency(bench: Bench) -> None:
    """By one clock: from the start of the enqueue's commit, which does not wait for the disk, to the first line of the
    task.  From its end, who enqueues may be the last to hear of it.
    """
    often, seldom = "a job every 20 ms", "a job every 1.5 s, the worker sleeps"
    raw(bench, f"{often}, {RAW}", bench.sizes.pick_ups, 0.02)
    by_worker(bench, often, bench.sizes.pick_ups, 0.02, limit=f"{often}, {RAW}")
    raw(bench, f"{seldom}, {RAW}", bench.sizes.sleeping_pick_ups, 1.5)
    by_worker(bench, seldom, bench.sizes.sleeping_pick_ups, 1.5, limit=f"{seldom}, {RAW}")


def by_worker(bench: Bench, name: str, count: int, gap_seconds: float, *, limit: str) -> None:
    database.empty()
    with workers.tallied(marks=count) as tally, workers.workers():
        timed(bench, name, count, gap_seconds, tally, limit=limit)


def raw(bench: Bench, name: str, count: int, gap_seconds: float) -> None:
    database.empty()
    listen = (limits.DEQUEUE, limits.COMPLETE)
    with workers.tallied(marks=count) as tally, listener.listening(database.url(), tally.path, *listen):
        timed(bench, name, count, gap_seconds, tally)


def timed(bench: Bench, name: str, count: int, gap_seconds: float, tally: Tally, *, limit: str | None = None) -> None:
    tasks.noop.enqueue(-1)  # has no mark: who has just started is not idle yet
    workers.wait_for(lambda: tally.count > 0, "the first job")
    time.sleep(SETTLING_SECONDS)
    committing = []
    for number in range(count):
        time.sleep(gap_seconds * random.uniform(0.5, 1.5))
        committing.append(enqueue(number))
    workers.wait_for(lambda: tally.count > count, "the last jobs")
    add(bench, name, [(b - c) / 1e6 for b, c in zip(tally.marks(), committing, strict=True)], limit=limit)


def enqueue(number: int) -> int:
    """When its commit started."""
    with transaction.atomic(), connection.cursor() as cursor:
        cursor.execute("set local synchronous_commit = off")
        tasks.noop.enqueue(number)
        return time.monotonic_ns()


def add(bench: Bench, name: str, milliseconds: list[float], *, limit: str | None = None) -> None:
    for word, share in SHARES.items():
        bench.add(f"{name}: {word}", percentile(milliseconds, share), "ms", limit=limit and f"{limit}: {word}")


def idle(bench: Bench) -> None:
    """Transactions of a worker that has nothing to do."""
    database.empty()
    with database.without_autovacuum(), workers.workers() as process:
        asleep = "select count(*) from pgqueue_worker where asleep_until is not null"
        workers.wait_for(lambda: database.value(asleep) >= 1, "the worker to sleep")
        database.leave()
        time.sleep(5)  # until the server has counted what it took to get here
        with database.connect() as connection:
            meter = Meter(connection, process.pid)
            time.sleep(bench.sizes.seconds)
            costs = meter.costs(1)
        memory = processes.memory_mb(process.pid)
    if memory is not None:
        bench.add("one process and its supervisor: memory", memory, "MB")
    bench.add("one process: transactions", costs.commits / bench.sizes.seconds, "/s")
    bench.add("one process: WAL", costs.wal_bytes / bench.sizes.seconds, "bytes/s")
    for name, used in (("worker CPU", costs.worker_us), ("PostgreSQL CPU", costs.server_us)):
        if used is not None:
            bench.add(f"one process: {name}", used / 1e3 / bench.sizes.seconds, "ms/s")
