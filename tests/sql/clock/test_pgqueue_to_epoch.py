"""From a time to milliseconds."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from tests.support.sessions import Session


@pytest.mark.parametrize(
    ("at", "epoch_ms"),
    [
        ("1970-01-01 00:00:00+00", 0),
        ("1970-01-01 00:00:00.001+00", 1),
        ("1970-01-01 00:00:00.0019+00", 1),
        ("2023-11-14 22:13:20+00", 1_700_000_000_000),
        ("2023-11-14 22:13:20.123456+00", 1_700_000_000_123),
        ("2023-11-15 00:13:20.999999+02", 1_700_000_000_999),
        ("1969-12-31 23:59:59.999+00", -1),
        ("1969-12-31 23:59:59.9995+00", -1),
        ("1969-12-31 23:59:59.9985+00", -2),
        ("1969-12-31 23:59:58.5+00", -1500),
        ("4714-11-24 00:00:00+00 BC", -210_866_803_200_000),
        ("294276-12-31 23:59:59.999+00", 9_224_318_015_999_999),
    ],
)
def test_milliseconds_are_rounded_down_before_and_after_1970(session: Session, at: str, epoch_ms: int) -> None:
    assert session.one("select pgqueue_to_epoch(%s)", [at]) == epoch_ms


def test_no_time_is_no_milliseconds(session: Session) -> None:
    assert session.one("select pgqueue_to_epoch(null)") is None


def test_the_seconds_are_counted_once(session: Session) -> None:
    """The older LonnyMQ article adds extract(millisecond), which contains the seconds: its clock runs double."""
    elapsed = session.rows("""
        select pgqueue_to_epoch(at) - 1700000000000 as ours,
               extract(epoch from at)::bigint * 1000 + extract(millisecond from at)::bigint - 1700000000000 as theirs
        from unnest('{2023-11-14 22:13:40+00, 2023-11-14 22:13:59+00, 2023-11-14 22:14:00+00}'::timestamptz[]) as at
    """)
    assert [row.ours for row in elapsed] == [20_000, 39_000, 40_000]
    assert [row.theirs for row in elapsed] == [60_000, 98_000, 40_000], "the error that we do not repeat"


@pytest.mark.parametrize("zone", ["UTC", "Europe/Berlin", "America/New_York", "Asia/Kathmandu", "Australia/Lord_Howe"])
def test_the_time_zone_of_the_session_changes_nothing(session: Session, zone: str) -> None:
    session.rows("select set_config('timezone', %s, false)", [zone])
    assert session.one("select pgqueue_to_epoch('2024-03-31 02:30:00+00')") == 1_711_852_200_000
