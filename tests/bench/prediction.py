"""The model beside what was measured: waits of jobs that take 20 ms, at several loads; and where the model leads."""

from __future__ import annotations

import time
from dataclasses import replace
from typing import TYPE_CHECKING

from django.db import connection

from tests.bench import database, machine, tasks, workers
from tests.bench.figures import percentile
from tests.bench.model import Plant, Simulation, poisson

if TYPE_CHECKING:
    from tests.bench.bench import Bench

SHARES = {"p50": 0.5, "p95": 0.95, "p99": 0.99}
LOADS = (0.5, 0.8, 0.95)
SLOTS = 4
NAP_SECONDS = 0.02
OUTLOOK = ((1, 0.7), (4, 0.7), (16, 0.7), (64, 0.7), (1, 0.95), (4, 0.95), (16, 0.95), (64, 0.95))


def checked(bench: Bench) -> None:
    """What goes into the model is measured with single jobs and with a drain; what comes out, under load."""
    learned = learn(bench)
    for processes in (1, 2):
        plant = plant_of(learned, processes)
        for load in LOADS:
            arrivals, waits = measured(bench, plant, load)
            predicted = Simulation(plant, arrivals, seed=bench.run).run()
            name = f"{processes} x {SLOTS}, load {load:.0%}"
            for word, share in SHARES.items():
                bench.add(f"{name}: {word} measured", percentile(waits, share) * 1e3, "ms")
                limit = f"{name}: {word} measured"
                bench.add(f"{name}: {word} predicted", percentile(predicted, share) * 1e3, "ms", limit=limit)
    outlook(bench, learned)


def outlook(bench: Bench, learned: Plant) -> None:
    """Nothing of this was measured; the load is a share of what the slots can do."""
    for processes, load in OUTLOOK:
        plant = plant_of(learned, processes)
        arrivals = poisson(load * plant.capacity, 20_000, seed=bench.run)
        waits = Simulation(plant, arrivals, seed=bench.run).run()
        name = f"outlook, {processes} x {SLOTS}, load {load:.0%}"
        bench.add(f"{name}: p99 predicted", percentile(waits, 0.99) * 1e3, "ms")


def learn(bench: Bench) -> Plant:
    """One job at a time tells how soon it begins and how long it takes, a drain what each costs."""
    database.empty()
    drained = workers.drain(max(2000, bench.sizes.jobs // 10), tasks.noop)
    gap = NAP_SECONDS * 2
    arrivals = [number * gap for number in range(max(20, int(bench.sizes.seconds / 3 / gap)))]
    _, waits = run(arrivals, processes=1)
    with connection.cursor() as cursor:
        cursor.execute("select extract(epoch from finished_at - started_at) from pgqueue_attempt")
        took = [float(row[0]) for row in cursor.fetchall()]
    return Plant(
        processes=1,
        slots=SLOTS,
        job_seconds=took,
        pick_up_seconds=waits,
        worker_seconds=(drained.costs.worker_us or 50) / 1e6,
        message_seconds=(drained.costs.server_us or 30) / 1e6,
        cores=machine.cores(),
    )


def plant_of(learned: Plant, processes: int) -> Plant:
    return replace(learned, processes=processes)


def measured(bench: Bench, plant: Plant, load: float) -> tuple[list[float], list[float]]:
    rate = load * plant.capacity
    wanted = poisson(rate, max(20, int(rate * bench.sizes.seconds / 3)), seed=bench.run)
    return run(wanted, processes=plant.processes)


def run(wanted: list[float], *, processes: int) -> tuple[list[float], list[float]]:
    """When jobs were enqueued, as nearly as wanted as this machine could; and how long each waited."""
    database.empty()
    with workers.tallied(marks=len(wanted)) as tally, workers.workers(processes=processes, threads=SLOTS):
        begun, committed = time.monotonic() + 0.1, []
        for number, at in enumerate(wanted):
            time.sleep(max(0.0, begun + at - time.monotonic()))
            tasks.nap.enqueue(number, NAP_SECONDS)
            committed.append(time.monotonic_ns())
        workers.wait_for(lambda: tally.count >= len(wanted), "the last jobs")
        waits = [(began - at) / 1e9 for began, at in zip(tally.marks(), committed, strict=True)]
        workers.wait_for(lambda: database.value("select count(*) from pgqueue_message") == 0, "the last records")
    return [(at - committed[0]) / 1e9 for at in committed], waits
