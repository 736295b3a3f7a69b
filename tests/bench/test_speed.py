"""The machine's speed beside a long run."""

from __future__ import annotations

import time

from tests.bench.speed import Speed, measured, watched


def test_speed_is_measured_during_a_run_and_reported_afterwards() -> None:
    begun = time.monotonic()
    with watched() as speed:
        time.sleep(2.5)
    assert len(speed.measured) >= 2
    assert all(milliseconds > 0 for milliseconds in speed.between(begun, time.monotonic()))
    assert len(speed.between(begun, time.monotonic())) == len(speed.measured)


def test_speed_is_processor_time() -> None:
    begun = time.thread_time()
    seconds = measured()
    assert 0 < seconds <= time.thread_time() - begun


def test_minutes_without_a_measurement_are_left_out() -> None:
    speed = Speed([(10.0, 1.0), (20.0, 3.0), (150.0, 5.0), (200.0, 7.0)])
    assert speed.minutes(0.0, 190.0) == [2.0, 5.0]
    assert speed.minutes(300.0, 400.0) == []
    assert speed.between(10.0, 20.0) == [1.0]
