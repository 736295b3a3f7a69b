"""Prefetch: how many messages a worker holds."""

from __future__ import annotations

import pytest

from django_pgqueue.worker.claim.prefetch import AHEAD_SECONDS, MAX_CLAIMED, MAX_HELD, Prefetch
from django_pgqueue.worker.run.outcome import EndedAttempt, Succeeded
from tests.worker.test_floors import received

NOW = 1_800_000_000_000_000


def lasted(seconds: float, *, until: int) -> EndedAttempt:
    return EndedAttempt(received(1), Succeeded(None), until - round(seconds * 1e6), until)


def one_after_the_other(seconds: list[float], *, slots: int) -> list[EndedAttempt]:
    """In the order in which they end."""
    free = [NOW] * slots
    ends = []
    for one in seconds:
        slot = free.index(min(free))
        free[slot] += round(one * 1e6)
        ends.append(lasted(one, until=free[slot]))
    return sorted(ends, key=lambda end: end.finished_us)


def learned(*seconds: float, slots: int = 4) -> Prefetch:
    pace = Prefetch(slots)
    for one in seconds:
        pace.learn([lasted(one, until=NOW)])
    return pace


def test_at_first_a_worker_holds_one_message_per_slot() -> None:
    assert Prefetch(4).room(0) == 4
    assert Prefetch(4).room(4) == 0


def test_long_jobs_are_not_claimed_ahead() -> None:
    pace = learned(*[30.0] * 5)
    assert pace.room(0) == 4
    assert pace.room(3) == 1
    assert pace.room(4) == 0


def test_as_many_short_jobs_are_claimed_as_can_start_in_time() -> None:
    pace = learned(*[0.001] * 30)
    assert pace.most_held == pytest.approx(4 * AHEAD_SECONDS / 0.001, rel=0.02)
    assert pace.room(0) == pace.most_held
    assert pace.room(pace.refill_below) == 0, "enough is there"
    assert pace.room(pace.refill_below - 1) == pace.most_held - pace.refill_below + 1


@pytest.mark.parametrize("seconds", [0.0, 1e-9, -1.0])
def test_claims_of_very_short_jobs_are_bounded(seconds: float) -> None:
    pace = learned(*[seconds] * 60)
    assert pace.most_held == MAX_HELD
    assert pace.room(0) == MAX_CLAIMED


@pytest.mark.parametrize("seconds", [0.0, 0.00001, 0.001, 0.02, 0.2, 60.0])
@pytest.mark.parametrize("slots", [1, 4, 64])
def test_the_number_of_jobs_that_begin_after_a_pause_is_bounded(slots: int, seconds: float) -> None:
    """The slots still begin what is held: the page names both bounds."""
    pace = learned(*[seconds] * 60, slots=slots)
    held = 0
    while room := pace.room(held):
        held += room
    assert held <= 3000
    assert held <= max(slots, round(1.05 * 0.05 * slots / max(seconds, 1e-6)))


def test_longer_jobs_are_noticed_at_once() -> None:
    assert learned(*[0.0001] * 60, 5.0).room(0) == 4


def test_shorter_jobs_are_noticed_slowly() -> None:
    assert learned(10.0, 0.0001).room(0) == 4


def test_when_no_job_ends_a_worker_holds_one_message_per_slot_again() -> None:
    pace = learned(*[0.0001] * 60)
    pace.stalled()
    assert pace.room(0) == 4


@pytest.mark.parametrize("slots", [1, 3, 20])
@pytest.mark.parametrize("count", [1, 15, 16, 17, 60, 500])
def test_many_ends_are_estimated_like_one(slots: int, count: int) -> None:
    pace = Prefetch(slots)
    pace.learn(one_after_the_other([2.0] * count, slots=slots))
    assert pace.job_seconds == pytest.approx(2.0, rel=0.2)


def test_a_few_delayed_jobs_change_the_estimate_little() -> None:
    pace = Prefetch(4)
    for turn in range(40):
        ends = one_after_the_other([0.000012] * 1000, slots=4)
        ends[turn * 25] = ends[0] = ends[62 * 8] = lasted(0.015, until=ends[-1].finished_us)
        pace.learn(ends)
        assert turn < 12 or pace.room(0) == MAX_CLAIMED


def test_a_delayed_job_that_comes_alone_changes_the_estimate_little() -> None:
    pace = Prefetch(4)
    for _ in range(40):
        pace.learn(one_after_the_other([0.000012] * 1000, slots=4))
        pace.learn([lasted(0.033, until=NOW)])
        assert pace.room(0) == MAX_CLAIMED


def test_long_jobs_after_many_short_ones_are_noticed_within_a_few() -> None:
    pace = Prefetch(4)
    for _ in range(40):
        pace.learn(one_after_the_other([0.000012] * 1000, slots=4))
    held = []
    for _ in range(4):
        pace.learn([lasted(1.0, until=NOW)])
        held.append(pace.most_held)
    assert held[0] <= 50
    assert held[-1] <= 16


@pytest.mark.parametrize("seconds", [0.02, 0.05, 1.0])
def test_a_worker_that_holds_a_thousand_takes_no_more_when_the_first_proves_long(seconds: float) -> None:
    pace = Prefetch(4)
    for _ in range(40):
        pace.learn(one_after_the_other([0.00002] * 1000, slots=4))
    pace.learn([lasted(seconds, until=NOW)])
    assert pace.room(999) == 0


@pytest.mark.parametrize("place", [0, 1, 30, 62, 63])
def test_a_long_job_among_short_ones_is_not_overlooked(place: int) -> None:
    pace = learned(*[0.000012] * 20)
    seconds = [0.000012] * 64
    seconds[place] = 3.2
    pace.learn(one_after_the_other(seconds, slots=4))
    assert pace.most_held == 4


def test_there_is_no_room_while_more_jobs_are_unfinished_than_held() -> None:
    assert Prefetch(2).room(100) == 0


def test_jobs_count_as_short_until_they_prove_long() -> None:
    assert Prefetch(4).may_be_short
    assert learned(0.0001).may_be_short
    assert not learned(1.0).may_be_short
    stalled = learned(*[0.0001] * 5)
    stalled.stalled()
    assert not stalled.may_be_short


def test_the_first_jobs_have_the_greatest_weight() -> None:
    assert learned(0.0001).most_held > 20
