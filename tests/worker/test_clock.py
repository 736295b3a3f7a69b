"""DatabaseClock: the database's time without asking it."""

from __future__ import annotations

import datetime as dt

import pytest

from django_pgqueue.values.times import microseconds
from django_pgqueue.worker.run import clock
from django_pgqueue.worker.run.clock import DatabaseClock

NOON = dt.datetime(2026, 1, 1, 12, tzinfo=dt.UTC)


class Machine:
    def __init__(self) -> None:
        self.seconds = 1000.0

    def monotonic_ns(self) -> int:
        return round(self.seconds * 1e9)


@pytest.fixture
def machine(monkeypatch: pytest.MonkeyPatch) -> Machine:
    machine = Machine()
    monkeypatch.setattr(clock, "monotonic_ns", machine.monotonic_ns)
    return machine


def after(seconds: float) -> dt.datetime:
    return NOON + dt.timedelta(seconds=seconds)


def started() -> DatabaseClock:
    clock = DatabaseClock()
    clock.start(NOON)
    return clock


def test_the_clock_advances_with_the_machine(machine: Machine) -> None:
    now = started()
    assert now() == microseconds(NOON)
    machine.seconds += 2.5
    assert now() == microseconds(after(2.5))


def test_a_later_time_is_accepted(machine: Machine) -> None:
    now = started()
    now.correct(after(3), asked=machine.seconds)
    machine.seconds += 1
    assert now() == microseconds(after(4))


def test_a_time_that_was_long_on_its_way_is_ignored(machine: Machine) -> None:
    now = started()
    asked = machine.seconds
    machine.seconds += 100
    now.correct(after(0), asked=asked)
    assert now() == microseconds(after(100))


def test_a_clock_of_a_server_that_was_far_ahead_goes_back_with_it(machine: Machine) -> None:
    now = started()
    now.correct(after(7200), asked=machine.seconds)
    machine.seconds += 1
    now.correct(after(1), asked=machine.seconds)
    assert now() == microseconds(after(1))


def test_a_difference_of_less_than_a_second_does_not_put_the_clock_back(machine: Machine) -> None:
    now = started()
    now.correct(after(-0.9), asked=machine.seconds)
    assert now() == microseconds(NOON)


def test_nobody_sets_the_clock_of_a_job(machine: Machine) -> None:
    now = started()
    job = now.of_a_job()
    machine.seconds += 1
    now.correct(after(-7200), asked=machine.seconds)
    assert (now(), job()) == (microseconds(after(-7200)), microseconds(after(1)))
