"""A steady flow: one commit for each job, at rates far below what the machine can do, and what each job costs then."""

from __future__ import annotations

import multiprocessing
import os
import random
import time
from contextlib import contextmanager
from functools import partial
from threading import Event, Thread
from typing import TYPE_CHECKING, Any

import psycopg

from tests.bench import clients, database, workers
from tests.bench.figures import percentile
from tests.bench.meter import Meter

if TYPE_CHECKING:
    from collections.abc import Iterator
    from multiprocessing.synchronize import Event as Flag

    from tests.bench.bench import Bench
    from tests.bench.tally import Tally

CREATE = clients.CREATE
SETTLING_SECONDS = 2.0
WARM_JOBS = 20
SIZE = "select pg_relation_size('pgqueue_message')"


def steady(bench: Bench) -> None:
    """CPU includes the enqueues' own, which stands beside it, and what vacuum takes.  The first jobs only warm up."""
    for rate in bench.sizes.rates:
        count = max(WARM_JOBS, int(rate * bench.sizes.seconds))
        alone(bench, rate, count)
        by_worker(bench, rate, count)


def alone(bench: Bench, rate: int, count: int) -> None:
    database.empty()
    with database.connect() as connection, enqueuing(count, rate) as client:
        meter = begin(client, connection, worker=None)
        client.wait()
        costs = meter.costs(count)
    bench.add(f"{rate} jobs/s, enqueues alone: commits", 1e9 * count / client.took_ns, "/s", costs=costs)


def by_worker(bench: Bench, rate: int, count: int) -> None:
    database.empty()
    with (
        workers.tallied(marks=count + WARM_JOBS) as tally,
        workers.workers() as process,
        database.connect() as connection,
        enqueuing(count, rate) as client,
        watched_size() as sizes,
    ):
        meter = begin(client, connection, worker=process.pid)
        idle_before = idle_seconds()
        client.wait()
        idle = (idle_seconds() - idle_before) / (client.took_ns / 1e9) / (os.cpu_count() or 1)
        workers.wait_for(partial(has_run, tally, count + WARM_JOBS), "the last jobs")
        workers.wait_for(lambda: not database.value("select count(*) from pgqueue_message"), "their ends")
        meter.stop()
        costs = meter.costs(count)
        marks = tally.marks()
    waits = [(marks[number] - at) / 1e6 for number, at in client.committing.items()]
    for word, share in (("p50", 0.5), ("p99", 0.99), ("max", 1.0)):
        bench.add(f"{rate} jobs/s: wait, {word}", percentile(waits, share), "ms", costs=costs if share == 0.5 else None)
    bench.add(f"{rate} jobs/s: CPU of the machine that is idle", 100 * idle, "%")
    bench.add(f"{rate} jobs/s: largest size of pgqueue_message", max(sizes) / 1e6, "MB")


def has_run(tally: Tally, count: int) -> bool:
    return tally.count >= count


class Client:
    """A process that commits one message after another, at random times."""

    def __init__(self, count: int, rate: float) -> None:
        context = multiprocessing.get_context("spawn")
        self.ready, self.go, self.answer = context.Event(), context.Event(), context.Queue()
        self.process = context.Process(
            target=enqueue, args=(database.url(), count, rate, (self.ready, self.go), self.answer), daemon=True
        )
        self.process.start()
        self.longest = count / rate * 3 + 120
        self.took_ns = 0
        self.committing: dict[int, int] = {}
        """When the commit of each job began, without those that warmed up."""

    def wait(self) -> None:
        self.took_ns, self.committing = self.answer.get(timeout=self.longest)


@contextmanager
def enqueuing(count: int, rate: float) -> Iterator[Client]:
    client = Client(count, rate)
    try:
        yield client
    finally:
        client.process.terminate()
        client.process.join()


def begin(client: Client, connection: psycopg.Connection[Any], *, worker: int | None) -> Meter:
    """Lets the flow begin when the first jobs have warmed up all, and all is quiet again."""
    if not client.ready.wait(60):
        message = "waited 60 seconds for the client"
        raise TimeoutError(message)
    time.sleep(SETTLING_SECONDS)
    meter = Meter(connection, worker)
    client.go.set()
    return meter


def enqueue(url: str, count: int, rate: float, flags: tuple[Flag, Flag], answer: Any) -> None:
    ready, go = flags
    chance, committing = random.Random(count), {}
    with psycopg.connect(url, autocommit=True, prepare_threshold=0) as connection:
        for number in range(count, count + WARM_JOBS):
            connection.execute(CREATE, (row(number),))
        ready.set()
        go.wait()
        begun = due = time.monotonic()
        for number in range(count):
            due += chance.expovariate(rate)
            time.sleep(max(0.0, due - time.monotonic()))
            committing[number] = time.monotonic_ns()
            connection.execute(CREATE, (row(number),))
    answer.put((int(1e9 * (time.monotonic() - begun)), committing))


def row(number: int) -> str:
    return f'{{"args": [{number}], "kwargs": {{}}}}'


@contextmanager
def watched_size() -> Iterator[list[int]]:
    sizes, ended = [int(database.value(SIZE))], Event()

    def watch() -> None:
        with database.connect() as connection:
            while not ended.wait(1.0):
                sizes.extend(row[0] for row in connection.execute(SIZE).fetchall())

    thread = Thread(target=watch)
    thread.start()
    try:
        yield sizes
    finally:
        ended.set()
        thread.join()


def idle_seconds() -> float:
    """Of all CPUs together, since the machine was started."""
    with open("/proc/stat") as stat:  # noqa: PTH123
        fields = stat.readline().split()
    return (int(fields[4]) + int(fields[5])) / os.sysconf("SC_CLK_TCK")
