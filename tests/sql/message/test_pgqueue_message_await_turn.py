"""Claims of many messages that come one after the other."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

import pytest

from tests.sql.words import behind
from tests.support.sessions import SECONDS

if TYPE_CHECKING:
    from tests.support.fixtures.sessions import Connect
    from tests.support.sessions import Session

LONG_MS = int(SECONDS * 1000)


def await_turn(session: Session, queues: list[str] | None = None, *, wait_ms: int = 50) -> int | None:
    waited_ms: int | None = session.value("pgqueue_message_await_turn", queues=queues, wait_ms=wait_ms)
    return waited_ms


@pytest.fixture
def holder(connect: Connect) -> Session:
    session = connect(autocommit=False)
    assert await_turn(session) == 0
    return session


def test_the_next_turn_begins_when_the_transaction_of_the_first_ends(holder: Session, connect: Connect) -> None:
    other = connect(autocommit=False)
    waited_ms = behind(holder, other, partial(await_turn, other, wait_ms=LONG_MS))
    assert waited_ms is not None
    assert 0 < waited_ms < LONG_MS
    assert await_turn(connect()) is None


def test_the_session_that_has_the_turn_gets_it_again(holder: Session) -> None:
    assert await_turn(holder) == 0


def test_a_worker_whose_wait_timed_out_goes_on_in_its_transaction(holder: Session, connect: Connect) -> None:
    other = connect(autocommit=False)
    other.create()
    assert await_turn(other) is None
    assert len(other.dequeue(1)) == 1
    other.commit()
    assert len(connect().messages()) == 1


@pytest.mark.parametrize("wait_ms", [0, -1])
def test_a_wait_of_zero_does_not_wait_for_ever(holder: Session, connect: Connect, wait_ms: int) -> None:
    assert await_turn(connect(), wait_ms=wait_ms) is None


def test_the_default_wait_is_one_second(session: Session) -> None:
    parameters = session.one("select pg_get_function_arguments('pgqueue_message_await_turn'::regproc)")
    assert "p_wait_ms integer DEFAULT 1000" in parameters


def test_the_lock_timeout_of_the_caller_is_restored(holder: Session, connect: Connect) -> None:
    other = connect(autocommit=False)
    other.rows("set local lock_timeout = '7s'")
    assert await_turn(other) is None
    assert other.one("show lock_timeout") == "7s"
    assert behind(holder, other, partial(await_turn, other, wait_ms=LONG_MS)) is not None
    assert other.one("show lock_timeout") == "7s"


def test_a_statement_timeout_shortens_the_wait(holder: Session, connect: Connect) -> None:
    other = connect()
    other.rows("set statement_timeout = '1s'")
    assert await_turn(other, wait_ms=LONG_MS) is None


def test_a_worker_of_other_queues_does_not_wait(connect: Connect) -> None:
    turns: list[list[str] | None] = [None, [], ["mail"], ["mail", "print"]]
    sessions = [connect(autocommit=False) for _ in turns]
    assert [await_turn(session, queues) for session, queues in zip(sessions, turns, strict=True)] == [0] * 4
    assert [await_turn(connect(), queues) for queues in turns] == [None] * 4
