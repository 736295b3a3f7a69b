"""The clock of the queue, and times as milliseconds."""

from __future__ import annotations

from typing import TYPE_CHECKING

import psycopg
import pytest

from tests.support.sessions import NOON

if TYPE_CHECKING:
    from tests.support.fixtures.sessions import Connect
    from tests.support.sessions import Session

everywhere = pytest.mark.parametrize(
    "zone", ["UTC", "Europe/Berlin", "America/New_York", "Asia/Kathmandu", "Australia/Lord_Howe"]
)


# pgqueue_clock: what time it is for the queue


def test_it_is_the_clock_of_the_database_unless_it_is_set(session: Session) -> None:
    before = session.one("select clock_timestamp()")
    clock = session.one("select pgqueue_clock()")
    assert before <= clock <= session.one("select clock_timestamp()")


def test_the_real_time_may_be_that_of_the_transaction(session: Session) -> None:
    assert session.one("select pgqueue_clock(now()) = now()")


@pytest.mark.parametrize("epoch_ms", [NOON, 0, -1, NOON + 1, 4_102_444_800_001])
def test_a_session_may_set_the_clock_and_it_stands_still(session: Session, epoch_ms: int) -> None:
    session.set_clock(epoch_ms)
    assert session.one("select pgqueue_clock() = pgqueue_from_epoch(%s)", [epoch_ms])
    assert session.one("select pgqueue_clock(now()) = pgqueue_from_epoch(%s)", [epoch_ms])


def test_an_empty_setting_restarts_the_clock(session: Session) -> None:
    session.set_clock(NOON)
    session.set_clock(None)
    assert session.one("select pgqueue_clock() >= now()")


def test_a_setting_that_is_no_number_is_an_error(session: Session) -> None:
    session.rows("set pgqueue.now = 'tomorrow'")
    with pytest.raises(psycopg.errors.InvalidTextRepresentation):
        session.rows("select pgqueue_clock()")


# pgqueue_now: what time it is for the queue, in milliseconds


@pytest.mark.parametrize("epoch_ms", [NOON, 0, -1, 2**62])
def test_a_session_may_set_the_time_and_it_stands_still(session: Session, epoch_ms: int) -> None:
    session.set_clock(epoch_ms)
    assert session.one("select pgqueue_now()") == epoch_ms
    assert session.one("select pgqueue_now(now())") == epoch_ms


def test_it_agrees_with_the_clock(session: Session) -> None:
    assert session.one("select pgqueue_now(now()) = pgqueue_to_epoch(pgqueue_clock(now()))")
    session.set_clock(NOON)
    assert session.one("select pgqueue_now() = pgqueue_to_epoch(pgqueue_clock())")


def test_the_clock_of_one_session_does_not_change_others(connect: Connect) -> None:
    traveller, other = connect(), connect()
    traveller.set_clock(NOON)
    assert other.one("select pgqueue_now()") > NOON


# pgqueue_to_epoch: from a time to milliseconds


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


def test_the_seconds_are_counted_once(session: Session) -> None:
    """The older LonnyMQ article adds extract(millisecond), which contains the seconds: its clock runs double."""
    elapsed = session.rows("""
        select pgqueue_to_epoch(at) - 1700000000000 as ours,
               extract(epoch from at)::bigint * 1000 + extract(millisecond from at)::bigint - 1700000000000 as theirs
        from unnest('{2023-11-14 22:13:40+00, 2023-11-14 22:13:59+00, 2023-11-14 22:14:00+00}'::timestamptz[]) as at
    """)
    assert [row.ours for row in elapsed] == [20_000, 39_000, 40_000]
    assert [row.theirs for row in elapsed] == [60_000, 98_000, 40_000], "the error that we do not repeat"


@everywhere
def test_the_time_zone_of_the_session_changes_nothing(session: Session, zone: str) -> None:
    session.rows("select set_config('timezone', %s, false)", [zone])
    assert session.one("select pgqueue_to_epoch('2024-03-31 02:30:00+00')") == 1_711_852_200_000


# pgqueue_from_epoch: from milliseconds to a time


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
        (2**63 - 1, "infinity"),
        (-(2**63), "-infinity"),
    ],
)
def test_every_bigint_has_a_time(session: Session, epoch_ms: int, text: str) -> None:
    session.rows("set timezone = 'UTC'")
    assert session.one("select pgqueue_from_epoch(%s)::text", [epoch_ms]) == text


def test_no_time_is_no_milliseconds_and_the_other_way_round(session: Session) -> None:
    assert session.one("select pgqueue_to_epoch(null)") is None
    assert session.one("select pgqueue_from_epoch(null)") is None


@everywhere
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
