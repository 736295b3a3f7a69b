"""What time it is for the queue."""

from __future__ import annotations

from typing import TYPE_CHECKING

import psycopg
import pytest

from tests.support.sessions import NOON

if TYPE_CHECKING:
    from tests.support.sessions import Session


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
