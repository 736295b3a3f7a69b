"""Messages that were not started are given back."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from tests.support.sessions import token, tokens

if TYPE_CHECKING:
    from tests.support.fixtures.sessions import Connect
    from tests.support.sessions import Session


def create_unique(session: Session, content: Any = "tea", **parameters: Any) -> int:
    """The id of the message that now holds the key: until it starts."""
    [row] = session.call(
        "pgqueue_message_create_unique", unique_key="k", content=content, until_started=True, **parameters
    )
    message_id: int = row.p_id
    return message_id


def test_released_messages_keep_their_position(session: Session) -> None:
    session.create_batch(4)
    taken = session.dequeue(2, worker="w1")
    assert sorted(session.ids("pgqueue_message_release", **tokens(taken))) == [message.id for message in taken]
    assert [message.content for message in session.dequeue(4)] == [0, 1, 2, 3]


def test_the_attempt_does_not_count_and_leaves_no_history(session: Session) -> None:
    message_id = session.create(max_attempts=1)
    for _ in range(10):
        session.ids("pgqueue_message_release", **tokens([session.take(worker="w1")]))
    message = session.message(message_id)
    assert (message.attempt, message.unlock_at, message.locked_at, message.worker) == (0, None, None, None)
    assert session.history() == []
    assert session.take().attempt == 1


def test_state_and_the_last_error_stay(session: Session) -> None:
    message_id = session.create()
    held = session.take(worker="w1")
    session.value(
        "pgqueue_message_defer", id=held.id, attempt=1, worker="w1", state={"page": 2}, error={"message": "late"}
    )
    before = session.message(message_id)
    session.ids("pgqueue_message_release", **tokens([session.take(worker="w1")]))
    assert session.message(message_id) == before


def test_a_key_held_until_started_is_held_again(session: Session) -> None:
    first = create_unique(session)
    session.ids("pgqueue_message_release", **tokens([session.take(worker="w1")]))
    assert create_unique(session) == first
    session.take(worker="w1")
    assert create_unique(session) != first


def test_a_key_that_another_message_holds_now_is_not_restored(session: Session) -> None:
    first = create_unique(session, "first")
    held = session.take(worker="w1")
    second = create_unique(session, "second")
    assert session.ids("pgqueue_message_release", **tokens([held])) == [first]
    assert create_unique(session) == second
    assert [(message.content, message.attempt) for message in session.dequeue(5)] == [("first", 1), ("second", 1)]


def test_of_two_released_messages_with_a_key_the_first_holds_it(session: Session) -> None:
    first = create_unique(session)
    held = [session.take(worker="w1")]
    create_unique(session)
    held.append(session.take(worker="w1"))
    assert len(session.ids("pgqueue_message_release", **tokens(held))) == 2
    assert create_unique(session) == first


def test_a_message_with_an_earlier_attempt_does_not_restore_its_key(session: Session) -> None:
    first = create_unique(session)
    session.value("pgqueue_message_defer", **token(session.take(worker="w1")))
    session.ids("pgqueue_message_release", **tokens([session.take(worker="w1")]))
    assert create_unique(session) != first


def test_a_message_asked_to_stop_does_not_restore_its_key(session: Session) -> None:
    first = create_unique(session)
    held = session.take(worker="w1")
    session.ids("pgqueue_message_request_cancel", ids=[first])
    second = create_unique(session)
    assert session.ids("pgqueue_message_release", **tokens([held])) == [first]
    assert [message.id for message in session.messages()] == [second]


@pytest.mark.parametrize("commits", [True, False])
def test_an_uncommitted_holder_of_the_key_keeps_it_without_a_wait(connect: Connect, commits: bool) -> None:
    worker, producer = connect(), connect(autocommit=False)
    first = create_unique(worker, "first")
    worker.create("without a key")
    held = worker.dequeue(2, worker="w1")
    second = create_unique(producer, "second")
    worker.rows("set statement_timeout = '5s'")
    assert len(worker.ids("pgqueue_message_release", **tokens(held))) == 2
    assert worker.one("show lock_timeout") == "0"
    producer.commit() if commits else producer.rollback()
    third = create_unique(worker, "third")
    assert third not in {first, second} if not commits else third == second
    assert {message.content for message in worker.dequeue(5)} == (
        {"first", "without a key", "second" if commits else "third"}
    )
