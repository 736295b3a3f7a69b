"""pgqueue_lake_move, pgqueue_lake_forget: PostgreSQL knows the lakes, and retention waits for them."""

from __future__ import annotations

import datetime as dt
from typing import TYPE_CHECKING

import pytest

from tests.support.sessions import NOON, end_one

if TYPE_CHECKING:
    from tests.support.sessions import Session

DAY_MS = 86_400_000
DAY = dt.date(2023, 11, 14)  # that of NOON, in UTC
FAR = 1 << 60


def move(session: Session, lake: str, position: int, *, is_done: bool = True) -> int:
    found: int = session.one(
        "select missed_attempts from pgqueue_lake_move(%s, %s, %s, %s)", [lake, f"/data/{lake}", position, is_done]
    )
    return found


def an_old_day(session: Session) -> int:
    """A day with one attempt.  Returns the transaction that wrote it."""
    session.set_clock(NOON)
    session.value("pgqueue_attempt_partition", day=DAY)
    end_one(session, NOON)
    return int(session.one("select transaction_id from pgqueue_attempt"))


def retain(session: Session, days_later: int, **more: int) -> bool:
    """Maintains some days later.  Returns whether the day is still there."""
    session.set_clock(NOON + days_later * DAY_MS)
    session.value("pgqueue_attempt_maintain", days_ahead=0, days_kept=2, **more)
    return bool(session.one("select to_regclass('pgqueue_attempt_20231114') is not null"))


# pgqueue_lake_move: how far a lake has come.


def test_pgqueue_lake_move_records_a_run_that_begins_and_one_that_is_done(session: Session) -> None:
    asked = "select position, exported_at from pgqueue_lake"
    session.set_clock(NOON)
    move(session, "a", 5, is_done=False)
    assert session.rows(asked) == [(5, None)]
    move(session, "a", 9)
    [(position, at)] = session.rows(asked)
    assert (position, at) == (9, session.one("select pgqueue_clock()"))
    session.set_clock(NOON + DAY_MS)
    move(session, "a", 9, is_done=False)
    assert session.rows(asked) == [(9, at)]


# pgqueue_lake_forget: a lake that was given up.


def test_pgqueue_lake_forget_takes_an_id_or_a_location(session: Session) -> None:
    for lake in ("a", "b"):
        move(session, lake, 5)
    assert session.value("pgqueue_lake_forget", lake="a") == 1
    assert session.value("pgqueue_lake_forget", lake="/data/b") == 1
    assert session.value("pgqueue_lake_forget", lake="c") == 0
    assert not session.rows("select from pgqueue_lake")


def test_history_that_each_lake_has_is_dropped_at_its_time(session: Session) -> None:
    an_old_day(session)
    move(session, "a", FAR)
    move(session, "b", FAR)
    assert not retain(session, 3)
    assert session.rows("select from pgqueue_lake where missed_attempts > 0") == []


def test_history_waits_for_a_lake_then_is_dropped_and_the_row_says_so(session: Session) -> None:
    written = an_old_day(session)
    move(session, "a", written)
    move(session, "b", FAR)
    assert retain(session, 3)
    assert retain(session, 9)
    assert not retain(session, 10)
    found = session.rows("select id, missed_attempts, missed_from, missed_until from pgqueue_lake order by id")
    assert found == [("a", 1, DAY, DAY), ("b", 0, None, None)]
    assert move(session, "a", FAR) == 1


@pytest.mark.parametrize("how", ["forgotten", "at once"])
def test_history_does_not_wait_for_a_lake_that_is_forgotten_or_without_a_limit(session: Session, how: str) -> None:
    move(session, "a", an_old_day(session))
    if how == "forgotten":
        session.value("pgqueue_lake_forget", lake="a")
    assert not retain(session, 3, **({"lake_days": 0} if how == "at once" else {}))
