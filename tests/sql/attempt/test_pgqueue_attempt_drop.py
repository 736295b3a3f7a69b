"""The history of a day is dropped when its copy is the same."""

from __future__ import annotations

import datetime as dt
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from typing import TYPE_CHECKING

import psycopg
import pytest

from tests.support.sessions import NOON, end_one, eventually

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.support.fixtures.sessions import Connect
    from tests.support.sessions import Session

DAY = dt.date(2023, 11, 14)  # that of NOON, in UTC
NAME = "pgqueue_attempt_20231114"


@pytest.fixture
def day(connect: Connect) -> Iterator[Session]:
    """A session, and a day years ago with three attempts."""
    session = connect()
    session.value("pgqueue_attempt_partition", day=DAY)
    for _ in range(3):
        end_one(session, NOON)
    session.set_clock(None)
    yield session
    session.rows(f"drop table if exists {NAME}")


def fingerprint(session: Session) -> str:
    found: str = session.value("pgqueue_attempt_fingerprint", day=DAY)
    return found


def drop(session: Session, copied: str) -> bool:
    dropped: bool = session.value("pgqueue_attempt_drop", day=DAY, fingerprint=copied)
    return dropped


def test_a_day_that_was_copied_is_dropped(day: Session) -> None:
    assert drop(day, fingerprint(day))
    assert day.one("select to_regclass(%s)", [NAME]) is None
    assert day.history() == []


def test_a_day_with_more_rows_than_its_copy_stays(day: Session) -> None:
    copied = fingerprint(day)
    end_one(day, NOON)
    assert not drop(day, copied)
    assert len(day.history()) == 4


def test_a_day_without_a_partition_drops_nothing(session: Session) -> None:
    assert not drop(session, "0:0:0")


def test_the_partition_of_today_is_never_dropped(session: Session) -> None:
    today = session.one("select (now() at time zone 'UTC')::date")
    copied = session.value("pgqueue_attempt_fingerprint", day=today)
    assert not session.value("pgqueue_attempt_drop", day=today, fingerprint=copied)


def test_a_commit_between_check_and_lock_keeps_the_day(day: Session, connect: Connect) -> None:
    copied = fingerprint(day)
    writer, dropper = connect(autocommit=False), connect()
    end_one(writer, NOON)  # holds a lock of the table, and nobody sees the row
    with ThreadPoolExecutor(1) as pool:
        dropped = pool.submit(drop, dropper, copied)
        eventually(lambda: day.waits_for_a_lock(dropper) or dropped.done())
        writer.commit()
        with suppress(psycopg.errors.LockNotAvailable):  # this machine was slow: nothing is done then either
            assert dropped.result() is False
    assert len(day.history()) == 4


def test_an_unavailable_table_lock_is_an_error_and_drops_nothing(day: Session, connect: Connect) -> None:
    copied, reader = fingerprint(day), connect(autocommit=False)
    reader.history()
    with pytest.raises(psycopg.errors.LockNotAvailable):
        drop(day, copied)
    reader.rollback()
    assert len(day.history()) == 3
