"""How soon a durable task goes on after its event, on a worker that is idle, and what that idling costs."""

from __future__ import annotations

import random
import time
from typing import TYPE_CHECKING

from django.db import connection, transaction

from django_pgqueue.durable import emit
from tests.bench import database, pickup, tasks, workers
from tests.bench.meter import Meter

if TYPE_CHECKING:
    from tests.bench.bench import Bench

GAP_SECONDS = 0.2
SUSPENDED = "select count(*) from pgqueue_message where awaited_event is not null and suspended_attempt is not null"


def events(bench: Bench) -> None:
    """By one clock: from the start of the emit's commit, which does not wait for the disk, to the first line behind the
    wait.
    """
    database.empty()
    count = bench.sizes.wake_ups
    with workers.tallied(marks=count) as tally, workers.workers() as process:
        for number in range(count):
            tasks.wait_for_its_event.enqueue(number)
        workers.wait_for(lambda: database.value(SUSPENDED) == count, "all to wait")
        idle(bench, process.pid)
        committing = []
        for number in range(count):
            time.sleep(GAP_SECONDS * random.uniform(0.5, 1.5))
            committing.append(emitted(number))
        workers.wait_for(lambda: tally.count >= count, "the last one to go on")
        marks = tally.marks()
    pickup.add(bench, "from an event to its task", [(b - c) / 1e6 for b, c in zip(marks, committing, strict=True)])


def emitted(number: int) -> int:
    """Returns when its commit started."""
    with transaction.atomic(), connection.cursor() as cursor:
        cursor.execute("set local synchronous_commit = off")
        emit(tasks.event_of(number))
        return time.monotonic_ns()


def idle(bench: Bench, worker: int) -> None:
    """The CPU of a worker and of PostgreSQL while all jobs wait for their events."""
    time.sleep(pickup.SETTLING_SECONDS)
    database.leave()
    with database.connect() as session:
        meter = Meter(session, worker)
        time.sleep(bench.sizes.seconds)
        meter.stop()
        costs = meter.costs(1)
    for name, used in (("worker", costs.worker_us), ("PostgreSQL", costs.server_us)):
        if used is not None:
            bench.add(f"while all wait: CPU of {name}", used / 1e4 / bench.sizes.seconds, "% of a core")
