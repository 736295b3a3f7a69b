"""Pace: how many messages a worker holds."""

from __future__ import annotations

import datetime as dt

import pytest

from django_pgqueue.worker.outcome import Ended, Succeeded
from django_pgqueue.worker.pace import AHEAD_SECONDS, MOST_CLAIMED, MOST_HELD, Pace
from tests.worker.test_floors import NOW, received


def ended(seconds: float, count: int = 1) -> list[Ended]:
    end = Ended(received(1), Succeeded(None), NOW, NOW + dt.timedelta(seconds=seconds))
    return [end] * count


def learned(*seconds: float, slots: int = 4) -> Pace:
    pace = Pace(slots)
    for one in seconds:
        pace.learn(ended(one))
    return pace


def test_at_first_it_holds_one_for_each_slot() -> None:
    assert Pace(4).room(0) == 4
    assert Pace(4).room(4) == 0


def test_long_jobs_are_not_hoarded() -> None:
    pace = learned(*[30.0] * 5)
    assert pace.room(0) == 4
    assert pace.room(3) == 1
    assert pace.room(4) == 0


def test_short_jobs_are_claimed_as_many_as_start_in_time() -> None:
    pace = learned(*[0.001] * 30)
    assert pace.most_held == pytest.approx(4 * AHEAD_SECONDS / 0.001, rel=0.02)
    assert pace.room(0) == pace.most_held
    assert pace.room(pace.refill_below) == 0, "enough is there"
    assert pace.room(pace.refill_below - 1) == pace.most_held - pace.refill_below + 1


@pytest.mark.parametrize("seconds", [0.0, 1e-9, -1.0])
def test_jobs_that_take_no_time_have_a_bound(seconds: float) -> None:
    pace = learned(*[seconds] * 60)
    assert pace.most_held == MOST_HELD
    assert pace.room(0) == MOST_CLAIMED


def test_when_jobs_turn_long_it_notices_at_once() -> None:
    assert learned(*[0.0001] * 60, 5.0).room(0) == 4


def test_when_jobs_turn_short_it_believes_it_slowly() -> None:
    assert learned(10.0, 0.0001).room(0) == 4


def test_when_nothing_ends_it_holds_one_for_each_slot_again() -> None:
    pace = learned(*[0.0001] * 60)
    pace.stalled()
    assert pace.room(0) == 4


@pytest.mark.parametrize("count", [1, 15, 16, 17, 500])
def test_a_sample_of_many_is_enough(count: int) -> None:
    pace = Pace(1)
    pace.learn(ended(2.0, count))
    assert pace.job_seconds == pytest.approx(2.0, rel=0.2)


def test_more_that_is_unfinished_than_it_would_hold_is_no_room() -> None:
    assert Pace(2).room(100) == 0


def test_jobs_may_be_short_until_they_turn_out_not_to_be() -> None:
    assert Pace(4).may_be_short
    assert learned(0.0001).may_be_short
    assert not learned(1.0).may_be_short
    stalled = learned(*[0.0001] * 5)
    stalled.stalled()
    assert not stalled.may_be_short


def test_the_first_jobs_say_most() -> None:
    assert learned(0.0001).most_held > 20
