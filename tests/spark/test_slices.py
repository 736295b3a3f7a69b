"""What the tasks read has no row in common and misses none."""

from __future__ import annotations

import datetime as dt
import itertools
from typing import TYPE_CHECKING, Any

import pytest

from django_pgqueue.spark import slices
from tests.spark.conftest import finish, without_old_pages

if TYPE_CHECKING:
    from collections.abc import Iterable

    from tests.support.sessions import Session

TODAY = dt.datetime.now(tz=dt.UTC).replace(hour=0, minute=0, second=0, microsecond=0)
DAY = slices.DAY


@pytest.fixture
def history(session: Session) -> Session:
    """Much today, little tomorrow, something on a day that has no partition, and in the far past."""
    without_old_pages(session)
    for days, number in ((0, 500), (1, 20), (40, 3), (-4000, 2)):
        session.set_clock(int((TODAY + days * DAY).timestamp() * 1000))
        finish(session, number)
    session.set_clock(None)
    return session


def ids(session: Session, ranges: Any) -> list[int]:
    found: list[int] = []
    for condition in ranges:
        found += session.column(f"select id from pgqueue_attempt where {condition.as_string(None)}")
    return found


def flat(found: Iterable[list[int]]) -> list[int]:
    return sorted(itertools.chain.from_iterable(found))


def test_slices_of_days_are_the_whole_history_and_about_even(history: Session) -> None:
    for wanted in (1, 2, 3, 8):
        parts = slices.of_days(history.connection, at_most=8, exactly=wanted)
        found = [ids(history, ranges) for ranges in parts]
        assert flat(found) == sorted(history.column("select id from pgqueue_attempt"))
        assert len(parts) == wanted
        assert max(map(len, found)) <= 525 / wanted * 2


def test_a_slice_is_whole_days_and_parts_of_days(history: Session) -> None:
    day = slices.Day(begin=TODAY, size=1)
    conditions = (day.rows(5, None), slices.between("finished_at", TODAY + DAY, None))
    assert slices._between(slices.Cut(day=day, id=5), None) == conditions


def test_a_small_history_is_read_by_one_task_and_a_large_one_by_as_many_as_there_may_be(
    history: Session, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert slices.of_days(history.connection, at_most=8) == [slices.WHOLE]
    monkeypatch.setattr(slices, "BYTES_A_TASK", 1000)
    assert len(slices.of_days(history.connection, at_most=4)) == 4


def test_days_that_a_filter_leaves_out_do_not_count(history: Session, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(slices, "BYTES_A_TASK", 20_000)
    whole = slices.of_days(history.connection, at_most=100)
    tomorrow = slices.of_days(history.connection, at_most=100, earliest=TODAY + DAY, latest=TODAY + 2 * DAY)
    assert len(tomorrow) < len(whole)
    found = [ids(history, ranges) for ranges in tomorrow]
    assert flat(found) == sorted(history.column("select id from pgqueue_attempt"))


def test_an_empty_queue_is_one_slice(session: Session) -> None:
    assert len(slices.of_days(session.connection, at_most=4, exactly=4)) <= 4


def test_parts_by_remainder_are_the_whole(history: Session, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(slices, "ROWS_A_TASK", 200)
    now = history.one("select pg_current_xact_id()::text::bigint")
    parts = slices.of_transactions(history.connection, now, now + 1, at_most=4)
    assert parts is not None
    found = [ids(history, part) for part in parts]
    assert flat(found) == sorted(history.column("select id from pgqueue_attempt"))
    assert len(parts) == 3
    monkeypatch.setattr(slices, "ROWS_A_TASK", 100)
    assert slices.of_transactions(history.connection, now, now + 1, at_most=4) is None, "it would be read too often"
