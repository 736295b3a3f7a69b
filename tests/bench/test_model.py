"""The model agrees with what is known of queues by arithmetic."""

from __future__ import annotations

import math
import statistics

import pytest

from tests.bench.model import Plant, Simulation, poisson

INSTANT = (0.0,)


def test_a_single_job_waits_no_longer_than_the_pick_up() -> None:
    plant = Plant(processes=2, slots=1, job_seconds=(0.01,), pick_up_seconds=(0.002,), message_seconds=0.001)
    waits = Simulation(plant, [number * 0.1 for number in range(50)]).run()
    assert waits == [pytest.approx(0.003)] * 50


def test_waits_at_a_single_server_match_the_pollaczek_khinchine_formula() -> None:
    plant = Plant(processes=1, slots=1, job_seconds=(0.05,), pick_up_seconds=INSTANT)
    load = 0.7
    waits = Simulation(plant, poisson(load / 0.05, 40_000)).run()
    expected = load * 0.05 / (2 * (1 - load))
    assert statistics.mean(waits) == pytest.approx(expected, rel=0.1)


def test_more_slots_wait_less_at_the_same_load() -> None:
    def wait(processes: int) -> float:
        plant = Plant(processes=processes, slots=4, job_seconds=(0.05,), pick_up_seconds=INSTANT)
        return statistics.mean(Simulation(plant, poisson(0.9 * plant.capacity, 10_000)).run())

    assert wait(1) > wait(4) > wait(16)


def test_the_database_bounds_what_workers_can_do() -> None:
    plant = Plant(processes=64, slots=4, job_seconds=(0.001,), message_seconds=0.0001, cores=2, pick_up_seconds=INSTANT)
    assert plant.capacity == 20_000
    arrivals = poisson(2 * plant.capacity, 20_000)
    waits = Simulation(plant, arrivals).run()
    assert len(waits) == len(arrivals)
    # Twice what it can do: the last one waits about as long as the arrivals took.
    assert waits[-1] == pytest.approx(arrivals[-1], rel=0.1)


def test_one_process_computes_one_job_at_a_time() -> None:
    plant = Plant(processes=1, slots=8, job_seconds=(0.0,), worker_seconds=0.01, pick_up_seconds=INSTANT)
    waits = Simulation(plant, [0.0] * 8).run()
    assert waits == [pytest.approx(number * 0.01) for number in range(8)]


def test_arrivals_come_at_the_rate_that_was_asked_for() -> None:
    arrivals = poisson(200, 10_000)
    assert math.isclose(arrivals[-1], 50, rel_tol=0.05)
