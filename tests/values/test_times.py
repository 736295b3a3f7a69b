"""From the times that callers speak of to the milliseconds that the queue keeps."""

from __future__ import annotations

import datetime as dt
from typing import Any
from zoneinfo import ZoneInfo

import pytest
from django.utils import timezone
from hypothesis import given, strategies as st

from django_pgqueue.exceptions import InvalidMessage
from django_pgqueue.values import times
from django_pgqueue.values.times import EPOCH, Delay, DequeueAt, EpochDateTime

MICROSECOND, MILLISECOND = dt.timedelta(microseconds=1), dt.timedelta(milliseconds=1)
BERLIN = ZoneInfo("Europe/Berlin")
zones = st.sampled_from([dt.UTC, BERLIN, ZoneInfo("America/New_York"), dt.timezone(dt.timedelta(hours=-12))])


@given(st.datetimes(timezones=zones))
def test_nothing_runs_before_its_time_and_at_most_a_millisecond_after(moment: dt.datetime) -> None:
    late = times.not_before(moment) * MILLISECOND - (moment - EPOCH)
    assert dt.timedelta(0) <= late < MILLISECOND


@pytest.mark.parametrize(
    ("moment", "epoch_ms"),
    [
        (dt.datetime(1970, 1, 1, tzinfo=dt.UTC), 0),
        (dt.datetime(1970, 1, 1, 0, 0, 0, 1, tzinfo=dt.UTC), 1),
        (dt.datetime(1970, 1, 1, 0, 0, 0, 1000, tzinfo=dt.UTC), 1),
        (dt.datetime(1969, 12, 31, 23, 59, 59, 999_999, tzinfo=dt.UTC), 0),
        (dt.datetime(1969, 12, 31, 23, 59, 59, 999_000, tzinfo=dt.UTC), -1),
        (dt.datetime.max.replace(tzinfo=dt.timezone(dt.timedelta(hours=-12))), 253_402_344_000_000),
        (dt.datetime.min.replace(tzinfo=dt.timezone(dt.timedelta(hours=12))), -62_135_640_000_000),
    ],
)
def test_the_first_whole_millisecond_at_or_after_it(moment: dt.datetime, epoch_ms: int) -> None:
    assert times.not_before(moment) == epoch_ms


@pytest.mark.parametrize(("fold", "hours"), [(0, 0), (1, 1)])
def test_the_two_passes_of_a_repeated_hour_are_distinguished(fold: int, hours: int) -> None:
    first = dt.datetime(2024, 10, 27, 0, 30, tzinfo=dt.UTC)
    twice = dt.datetime(2024, 10, 27, 2, 30, tzinfo=BERLIN, fold=fold)
    assert times.not_before(twice) == times.not_before(first + dt.timedelta(hours=hours))


def test_a_naive_time_is_in_the_current_time_zone() -> None:
    with timezone.override(BERLIN):
        naive = dt.datetime(2024, 7, 1, 14)  # noqa: DTZ001
        assert times.not_before(naive) == times.not_before(dt.datetime(2024, 7, 1, 12, tzinfo=dt.UTC))


@given(st.timedeltas())
def test_a_delay_is_never_shorter_and_at_most_a_millisecond_longer(delay: dt.timedelta) -> None:
    milliseconds = times.milliseconds(delay)
    assert milliseconds * 1000 - delay // MICROSECOND in range(1000)


@pytest.mark.parametrize(
    ("delay", "milliseconds"),
    [
        (dt.timedelta(0), 0),
        (dt.timedelta(seconds=1.5), 1500),
        (MICROSECOND, 1),
        (-MICROSECOND, 0),
        (dt.timedelta(milliseconds=-1), -1),
        (dt.timedelta.max, 86_400_000_000_000_000),
        (dt.timedelta.min, -86_399_999_913_600_000),
    ],
)
def test_a_delay_in_milliseconds(delay: dt.timedelta, milliseconds: int) -> None:
    assert times.milliseconds(delay) == milliseconds


NOON = dt.datetime(2023, 11, 14, 22, 13, 20, tzinfo=dt.UTC)


@pytest.mark.parametrize(
    ("said", "meant"),
    [
        ({}, None),
        ({"run_after": None, "dequeue_at": None}, None),
        ({"run_after": NOON}, DequeueAt(1_700_000_000_000)),
        ({"run_after": NOON.astimezone(BERLIN)}, DequeueAt(1_700_000_000_000)),
        ({"run_after": EpochDateTime.from_ms(-7)}, DequeueAt(-7)),
        ({"run_after": dt.timedelta(seconds=2)}, Delay(2000)),
        ({"run_after": dt.timedelta(seconds=-2)}, Delay(-2000)),
        ({"dequeue_at": 0}, DequeueAt(0)),
        ({"dequeue_at": -(2**63)}, DequeueAt(-(2**63))),
        ({"dequeue_at": 2**63 - 1}, DequeueAt(2**63 - 1)),
    ],
)
def test_a_time_is_absolute_relative_or_in_milliseconds(said: dict[str, Any], meant: times.When | None) -> None:
    assert times.when(**said) == meant


@pytest.mark.parametrize(
    ("said", "why"),
    [
        ({"run_after": NOON.replace(tzinfo=None)}, "has no time zone.*make_aware"),
        ({"run_after": NOON, "dequeue_at": 5}, "set the same time"),
        ({"run_after": 5}, "run_after=5 is neither"),
        ({"run_after": "tomorrow"}, "run_after='tomorrow' is neither"),
        ({"run_after": NOON.date()}, "neither a datetime nor a timedelta"),
        ({"dequeue_at": 2**63}, "64 bits"),
        ({"dequeue_at": -(2**63) - 1}, "64 bits"),
        ({"dequeue_at": 1.5}, "whole number"),
        ({"dequeue_at": True}, "whole number"),
        ({"dequeue_at": NOON}, "use run_after"),
    ],
)
def test_invalid_times_are_refused_with_the_next_step(said: dict[str, Any], why: str) -> None:
    with pytest.raises(InvalidMessage, match=why):
        times.when(**said)
