"""Waits before the next attempt."""

from __future__ import annotations

import math
from types import SimpleNamespace
from typing import Any, cast

import pytest
from hypothesis import given, strategies as st

from django_pgqueue.tasks import Exponential, retry

positive = st.floats(0.001, 1e6)


def waits(backoff: Exponential, attempts: int) -> list[float]:
    return [backoff.seconds(attempt=attempt) for attempt in range(1, attempts + 1)]


@pytest.mark.parametrize(
    ("backoff", "expected"),
    [
        (Exponential(base=1, factor=2, jitter=0), [1, 2, 4, 8, 16, 32]),
        (Exponential(base=10, factor=3, jitter=0), [10, 30, 90, 270]),
        (Exponential(base=5, factor=1, jitter=0), [5, 5, 5]),
        (Exponential(base=1, longest=10, jitter=0), [1, 2, 4, 8, 10, 10]),
    ],
)
def test_each_wait_is_the_previous_one_times_the_factor_up_to_the_maximum(
    backoff: Exponential, expected: list[float]
) -> None:
    assert waits(backoff, len(expected)) == expected


@given(positive, st.floats(1, 1000), positive, st.floats(0, 1), st.integers(1, 10**9))
def test_every_wait_is_a_number_of_seconds_up_to_the_maximum(
    base: float, factor: float, longest: float, jitter: float, attempt: int
) -> None:
    seconds = Exponential(base=base, factor=factor, longest=longest, jitter=jitter).seconds(attempt=attempt)
    assert 0 <= seconds <= longest
    assert math.isfinite(seconds)


@given(st.integers(1, 11))
def test_jitter_spreads_the_waits_to_both_sides_by_its_share(attempt: int) -> None:
    middle = 2.0 ** (attempt - 1)
    spread = [Exponential(base=1, jitter=0.25).seconds(attempt=attempt) for _ in range(200)]
    assert all(middle * 0.75 <= seconds <= middle * 1.25 for seconds in spread)
    assert min(spread) < middle < max(spread)


def test_jobs_that_failed_together_are_spread_even_at_the_maximum_wait() -> None:
    at_the_end = {Exponential(longest=60).seconds(attempt=100) for _ in range(50)}
    assert len(at_the_end) > 40


@pytest.mark.parametrize("factor", [2.0, 1e10, 1e300])
def test_the_billionth_attempt_has_a_wait_too(factor: float) -> None:
    assert Exponential(factor=factor, jitter=0).seconds(attempt=10**9) == 3600


def test_as_a_backoff_it_takes_the_attempt_from_the_result() -> None:
    third = cast("Any", SimpleNamespace(attempts=3))
    assert Exponential(base=1, jitter=0)(ValueError(), third) == 4


def test_by_default_ten_attempts_take_minutes_and_not_days() -> None:
    assert 8 * 60 < sum(waits(Exponential(jitter=0), 9)) < 9 * 60
    assert Exponential() == retry.DEFAULT
