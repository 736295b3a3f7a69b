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
    now.correct(after(3))
    machine.seconds += 1
    assert now() == microseconds(after(4))


def test_an_earlier_time_is_ignored_and_the_clock_never_goes_back(machine: Machine) -> None:
    now = started()
    machine.seconds += 1
    now.correct(after(0.9))
    assert now() == microseconds(after(1))
    now.correct(after(-100))
    assert now() == microseconds(after(1))
