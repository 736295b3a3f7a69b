"""What time it is for the queue, in milliseconds."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.support.sessions import NOON

if TYPE_CHECKING:
    from tests.support.fixtures.sessions import Connect
    from tests.support.sessions import Session


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
