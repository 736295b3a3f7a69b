"""Claims, and bulks of messages with unique keys, come one after the other."""

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


# pgqueue_message_await_turn: claims of many messages that come one after the other


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


# pgqueue_message_lock_keys: bulks of messages with unique keys stay out of each other's way


def lock(session: Session, task: str | None = "shop.tasks.price", *, alone: bool = False) -> bool:
    """Takes the lock, at once or after a wait.  A session that waits in vain goes on without."""
    session.rows("set local lock_timeout = '100ms'")
    had = holds(session)
    session.value("pgqueue_message_lock_keys", task=task, alone=alone)
    return holds(session) > had


def holds(session: Session) -> int:
    return int(
        session.one("select count(*) from pg_locks where pid = pg_backend_pid() and locktype = 'advisory' and granted")
    )


@pytest.mark.parametrize("first", [False, True])
@pytest.mark.parametrize("second", [False, True])
@pytest.mark.parametrize("task", ["shop.tasks.price", None])
def test_an_exclusive_lock_lasts_until_the_transaction_ends(
    connect: Connect, task: str | None, *, first: bool, second: bool
) -> None:
    one, other = connect(autocommit=False), connect(autocommit=False)
    assert lock(one, task, alone=first)
    assert lock(other, task, alone=second) is not (first or second)
    one.commit()
    other.commit()
    assert lock(other, task, alone=second)


def test_tasks_do_not_wait_for_each_other(connect: Connect) -> None:
    one, other = connect(autocommit=False), connect(autocommit=False)
    assert lock(one, alone=True)
    assert lock(other, "shop.tasks.send", alone=True)
    assert lock(other, None, alone=True)


def test_the_lock_may_be_taken_repeatedly(connect: Connect) -> None:
    session = connect(autocommit=False)
    for alone in (True, False, True):
        session.value("pgqueue_message_lock_keys", task="shop.tasks.price", alone=alone)
    assert holds(session)


def test_messages_without_keys_do_not_wait_for_an_exclusive_lock(connect: Connect) -> None:
    alone, other = connect(autocommit=False), connect()
    assert lock(alone, "b", alone=True)
    other.rows("set statement_timeout = '5s'")
    assert len(other.ids("pgqueue_message_create_many", messages=messages(keyed=False))) == 4


def test_a_bulk_with_keys_waits_for_an_exclusive_lock(connect: Connect) -> None:
    alone, other = connect(autocommit=False), connect()
    assert lock(alone, "b", alone=True)
    bulk = partial(other.ids, "pgqueue_message_create_many", messages=messages(keyed=True))
    assert len(behind(alone, other, bulk)) == 4


def test_a_bulk_with_keys_continues_after_a_lock_timeout(connect: Connect) -> None:
    alone, other = connect(autocommit=False), connect()
    assert lock(alone, "b", alone=True)
    other.rows("set lock_timeout = '100ms'")
    assert len(other.ids("pgqueue_message_create_many", messages=messages(keyed=True))) == 4


def messages(*, keyed: bool) -> list[dict[str, object]]:
    return [
        {"content": n, "task": task, "unique_key": f"{task}{n}" if keyed else None} for n, task in enumerate("ccbb")
    ]


def test_a_single_key_does_not_wait_for_an_exclusive_lock(connect: Connect) -> None:
    alone, other = connect(autocommit=False), connect()
    assert lock(alone, alone=True)
    other.rows("set lock_timeout = '100ms'")
    [row] = other.call("pgqueue_message_create_unique", unique_key="k", content=1, task="shop.tasks.price")
    assert row.p_created
