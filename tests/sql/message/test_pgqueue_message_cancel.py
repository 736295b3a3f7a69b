"""Messages that wait are withdrawn."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tests.support.sessions import NOON, token

if TYPE_CHECKING:
    from tests.support.sessions import Session

MINUTE = 60_000


def test_a_cancelled_message_leaves_the_queue_for_the_history(session: Session) -> None:
    session.set_clock(NOON)
    message_id = session.create({"n": 1}, queue="mail", headers={"trace": 1})
    assert session.value("pgqueue_message_cancel", id=message_id) is True

    assert session.messages() == []
    [end] = session.history(message_id)
    assert (end.status, end.final, end.content, end.headers) == ("cancelled", True, {"n": 1}, {"trace": 1})
    assert (end.attempt, end.worker, end.started_at) == (0, None, None), "it never ran"
    assert end.finished_at.timestamp() * 1000 == NOON


def test_a_message_that_waits_for_its_retry_can_be_cancelled(session: Session) -> None:
    message_id = session.create()
    session.value("pgqueue_message_defer", **token(session.take()), error={"message": "late"})
    assert session.value("pgqueue_message_cancel", id=message_id) is True
    assert [end.status for end in session.history(message_id)] == ["retried", "cancelled"]


def test_a_running_message_is_not_cancelled(session: Session) -> None:
    session.create()
    held = session.take()
    assert session.value("pgqueue_message_cancel", id=held.id) is False
    assert session.messages() == [held]
    assert session.history() == []


def test_ended_and_unknown_messages_are_not_cancelled(session: Session) -> None:
    session.create()
    held = session.take()
    session.value("pgqueue_message_complete", **token(held))
    assert session.value("pgqueue_message_cancel", id=held.id) is False
    assert session.value("pgqueue_message_cancel", id=2**62) is False
    assert [end.status for end in session.history()] == ["succeeded"]


def test_a_message_with_an_expired_lock_is_cancelled_and_lost_to_its_consumer(session: Session) -> None:
    session.set_clock(NOON)
    session.create()
    held = session.take(worker="dead")
    session.set_clock(NOON + MINUTE)
    assert session.value("pgqueue_message_cancel", id=held.id) is True
    assert session.value("pgqueue_message_complete", **token(held)) is False


def test_the_result_for_many_omits_running_and_ended_messages(session: Session) -> None:
    ids = session.create_batch(4)
    session.take()
    assert sorted(session.ids("pgqueue_message_cancel", ids=[*reversed(ids), 2**62])) == ids[1:]
    assert session.ids("pgqueue_message_cancel", ids=[]) == []
    assert [message.id for message in session.messages()] == ids[:1]
