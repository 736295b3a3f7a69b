"""Messages of the history are enqueued again."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.support.sessions import NOON, token

if TYPE_CHECKING:
    from tests.support.sessions import Session

ERROR = {"message": "no network"}


def fail_one(session: Session, content: object = "tea", **said: object) -> int:
    """The id in the history of a message that failed."""
    message_id = session.create(content, **said)
    held = session.take(tasks="task" in said)
    session.value("pgqueue_message_fail", **token(held), error=ERROR)
    attempt_id: int = session.history(message_id)[-1].id
    return attempt_id


def again(session: Session, *attempt_ids: int) -> list[int]:
    return session.ids("pgqueue_attempt_enqueue", attempt_ids=list(attempt_ids))


def test_a_new_message_has_the_same_values_and_all_its_attempts(session: Session) -> None:
    session.set_clock(NOON)
    said = {"queue": "mail", "task": "shop.tasks.send", "channel": "tenant", "priority": 7, "max_attempts": 3}
    attempt_id = fail_one(session, {"n": 1}, dequeue_at=NOON - 5, headers={"trace": 1}, **said)
    session.set_clock(NOON + 1000)

    [message_id] = again(session, attempt_id)

    first = session.history()[0].message_id
    message = session.message(message_id)
    assert message_id > first
    assert message.content == {"n": 1}
    assert {name: getattr(message, name) for name in said} == said
    assert (message.attempt, message.dequeue_at, message.last_error, message.state) == (0, NOON + 1000, None, None)
    assert message.headers == {"trace": 1, "enqueued_again_from": first}


def test_every_final_attempt_can_be_enqueued_again(session: Session) -> None:
    fail_one(session, "failed")
    session.create("succeeded")
    session.value("pgqueue_message_complete", **token(session.take()))
    session.value("pgqueue_message_cancel", id=session.create("cancelled"))
    again(session, *[end.id for end in session.history()])
    assert [message.content for message in session.dequeue(10)] == ["failed", "succeeded", "cancelled"]


def test_attempts_that_are_not_final_are_skipped(session: Session) -> None:
    session.create()
    session.value("pgqueue_message_defer", **token(session.take()))
    assert again(session, session.history()[0].id, 2**62) == []
    assert again(session) == []
    assert len(session.messages()) == 1


def test_messages_are_enqueued_in_their_original_order(session: Session) -> None:
    attempt_ids = [fail_one(session, n) for n in range(20)]
    assert len(again(session, *reversed(attempt_ids))) == 20
    assert [message.content for message in session.dequeue(20)] == list(range(20))


def test_an_attempt_that_is_named_twice_is_enqueued_once_and_the_history_stays_as_it_was(session: Session) -> None:
    attempt_id = fail_one(session)
    before = session.history()
    assert len(again(session, attempt_id, attempt_id)) == 1
    assert session.history() == before


def test_the_header_names_the_last_message_it_was_enqueued_from(session: Session) -> None:
    [first_again] = again(session, fail_one(session))
    session.value("pgqueue_message_fail", **token(session.take()))
    [second_again] = again(session, session.history()[-1].id)
    assert session.message(second_again).headers == {"enqueued_again_from": first_again}


@pytest.mark.parametrize("max_attempts", [1, 3, None])
def test_deferrals_of_the_first_time_are_not_attempts_of_the_second(session: Session, max_attempts: int | None) -> None:
    session.create(max_attempts=max_attempts)
    for error in (None, None, ERROR, None, ERROR, ERROR, ERROR):
        if session.messages():
            session.value("pgqueue_message_defer", **token(session.take()), error=error)
    [message_id] = again(session, session.history()[-1].id)
    assert session.message(message_id).max_attempts == max_attempts
