"""DatabaseClock: the database's time without asking it."""

from __future__ import annotations

import datetime as dt

import pytest

from django_pgqueue.worker.run import clock
from django_pgqueue.worker.run.clock import DatabaseClock

NOON = dt.datetime(2026, 1, 1, 12, tzinfo=dt.UTC)


class Machine:
    def __init__(self) -> None:
        self.seconds = 1000.0

    def monotonic(self) -> float:
        return self.seconds


@pytest.fixture
def machine(monkeypatch: pytest.MonkeyPatch) -> Machine:
    machine = Machine()
    monkeypatch.setattr(clock, "monotonic", machine.monotonic)
    return machine


def seconds(value: float) -> dt.timedelta:
    return dt.timedelta(seconds=value)


def started(now: dt.datetime) -> DatabaseClock:
    clock = DatabaseClock()
    clock.start(now)
    return clock


def test_the_clock_advances_with_the_machine(machine: Machine) -> None:
    now = started(NOON)
    assert now() == NOON
    machine.seconds += 2.5
    assert now() == NOON + seconds(2.5)


def test_a_later_time_is_accepted(machine: Machine) -> None:
    now = started(NOON)
    now.correct(NOON + seconds(3))
    machine.seconds += 1
    assert now() == NOON + seconds(4)


def test_an_earlier_time_is_ignored_and_the_clock_never_goes_back(machine: Machine) -> None:
    now = started(NOON)
    machine.seconds += 1
    now.correct(NOON + seconds(0.9))
    assert now() == NOON + seconds(1)
    now.correct(NOON - seconds(100))
    assert now() == NOON + seconds(1)
