"""The simulation against what is known without one."""

from __future__ import annotations

import math
import random
import statistics
from itertools import accumulate

import pytest

from django_pgqueue.spark.simulation import Scenario, SimulatedArrival, simulate

pytest.importorskip("pyspark")


def test_one_slot_runs_jobs_one_after_the_other() -> None:
    assert simulate(
        [SimulatedArrival(0, 10), SimulatedArrival(1, 10), SimulatedArrival(50, 1)], Scenario(slots=1)
    ).waits_ms == [0, 9, 0]


def test_the_most_urgent_goes_first_and_equal_ones_in_their_order() -> None:
    arrivals = [
        SimulatedArrival(0, 10),
        SimulatedArrival(1, 10),
        SimulatedArrival(2, 10),
        SimulatedArrival(3, 10, priority=5),
    ]
    assert simulate(arrivals, Scenario(slots=1)).waits_ms == [0, 10 - 3, 20 - 1, 30 - 2]


def test_a_full_channel_is_skipped() -> None:
    arrivals = [
        SimulatedArrival(0, 10, channel="a"),
        SimulatedArrival(0, 10, channel="a"),
        SimulatedArrival(0, 10, channel="b"),
    ]
    assert simulate(arrivals, Scenario(slots=2)).waits_ms == [0, 0, 10]
    assert simulate(arrivals, Scenario(slots=2, channel_limit=1)).waits_ms == [0, 0, 10]
    assert simulate(arrivals, Scenario(slots=3, channel_limit=1)).ended_ms == 20


def test_twice_the_load_is_the_same_arrivals_in_half_the_time() -> None:
    assert simulate(
        [SimulatedArrival(0, 10), SimulatedArrival(20, 10), SimulatedArrival(40, 10)], Scenario(slots=1, load=4)
    ).waits_ms == [
        0,
        5,
        10,
    ]


@pytest.mark.parametrize(("slots", "utilisation"), [(1, 0.6), (4, 0.7), (16, 0.75)])
def test_the_simulation_agrees_with_the_formula_for_many_servers(slots: int, utilisation: float) -> None:
    """Erlang's C: the chance to wait at all, and with it the mean wait, where arrivals and run times are exponential.

    How uncertain the mean of a simulation is, the means of 20 pieces of it say: four times their standard error is the
    tolerance.  With one slot less the formula is outside of it.
    """
    chance, run_ms = random.Random(4711), 10.0
    between_ms = run_ms / (slots * utilisation)
    times = accumulate(chance.expovariate(1 / between_ms) for _ in range(60_000))
    arrivals = [SimulatedArrival(at, chance.expovariate(1 / run_ms)) for at in times]
    waits = simulate(arrivals, Scenario(slots=slots)).waits_ms
    mean, error = with_error(waits)
    assert mean == pytest.approx(mean_wait(slots, slots * utilisation, run_ms), abs=4 * error)
    assert slots == 1 or mean < mean_wait(slots - 1, slots * utilisation, run_ms) - 4 * error
    assert sum(wait > 0 for wait in waits) / len(waits) == pytest.approx(erlang_c(slots, slots * utilisation), rel=0.08)


def with_error(values: list[float]) -> tuple[float, float]:
    size = len(values) // 20
    means = [statistics.fmean(values[n * size : (n + 1) * size]) for n in range(20)]
    return statistics.fmean(means), statistics.stdev(means) / math.sqrt(20)


def mean_wait(slots: int, load: float, run_ms: float) -> float:
    return erlang_c(slots, load) * run_ms / (slots - load)


def erlang_c(slots: int, load: float) -> float:
    busy = load**slots / math.factorial(slots) * slots / (slots - load)
    return busy / (sum(load**k / math.factorial(k) for k in range(slots)) + busy)


@pytest.mark.parametrize("wrong", [{"slots": 0}, {"slots": 1, "load": 0}, {"slots": 1, "channel_limit": 0}])
def test_an_impossible_scenario_is_refused(wrong: dict[str, float]) -> None:
    with pytest.raises(ValueError, match="is impossible"):
        Scenario(**wrong)  # type: ignore[arg-type]
