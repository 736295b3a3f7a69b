"""From milliseconds to a time."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from tests.support.sessions import Session

LARGEST, SMALLEST = 2**63 - 1, -(2**63)


def _text_of(session: Session, epoch_ms: int) -> str:
    session.rows("set timezone = 'UTC'")
    text: str = session.one("select pgqueue_from_epoch(%s)::text", [epoch_ms])
    return text


@pytest.mark.parametrize(
    ("epoch_ms", "text"),
    [
        (0, "1970-01-01 00:00:00+00"),
        (1, "1970-01-01 00:00:00.001+00"),
        (-1, "1969-12-31 23:59:59.999+00"),
        (-86_400_001, "1969-12-30 23:59:59.999+00"),
        (1_700_000_000_123, "2023-11-14 22:13:20.123+00"),
        (-210_866_803_200_000, "4714-11-24 00:00:00+00 BC"),
        (-210_866_803_200_001, "-infinity"),
        (9_223_372_036_854_775, "294247-01-10 04:00:54.775+00"),
        (9_223_372_036_854_776, "294247-01-10 04:00:54.776+00"),
        (9_224_318_015_999_999, "294276-12-31 23:59:59.999+00"),
        (9_224_318_016_000_000, "infinity"),
        (LARGEST, "infinity"),
        (SMALLEST, "-infinity"),
    ],
)
def test_every_bigint_has_a_time(session: Session, epoch_ms: int, text: str) -> None:
    assert _text_of(session, epoch_ms) == text


def test_no_milliseconds_are_no_time(session: Session) -> None:
    assert session.one("select pgqueue_from_epoch(null)") is None


@pytest.mark.parametrize("zone", ["UTC", "Europe/Berlin", "America/New_York", "Asia/Kathmandu", "Australia/Lord_Howe"])
def test_it_is_the_inverse_of_to_epoch_in_every_time_zone(session: Session, zone: str) -> None:
    """Also over the hours in which clocks are changed: every 25 minutes of a year, and centuries away."""
    session.rows("select set_config('timezone', %s, false)", [zone])
    wrong = session.rows("""
        select ms from (
            select generate_series(1704067200007, 1735689600000, 1500000) as ms
            union all
            select generate_series(-62135596800000, 253402300799999, 31556952000777)
        ) as times
        where pgqueue_to_epoch(pgqueue_from_epoch(ms)) <> ms
    """)
    assert wrong == []
