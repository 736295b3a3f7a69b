"""Messages that wait get another time."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tests.support.sessions import NOON, token

if TYPE_CHECKING:
    from tests.support.sessions import Session

MINUTE = 60_000


def test_without_a_time_messages_are_ready_at_once(session: Session) -> None:
    session.set_clock(NOON)
    message_id = session.create(dequeue_at=NOON + MINUTE)
    assert session.ids("pgqueue_message_reschedule", ids=[message_id]) == [message_id]
    assert session.take().dequeue_at == NOON


def test_messages_can_be_postponed_and_brought_forward(session: Session) -> None:
    session.set_clock(NOON)
    first, second = session.create_batch(2)
    session.ids("pgqueue_message_reschedule", ids=[first], dequeue_at=NOON + MINUTE)
    session.ids("pgqueue_message_reschedule", ids=[second], dequeue_at=-1)
    assert [message.dequeue_at for message in session.messages()] == [NOON + MINUTE, -1]
    assert [message.id for message in session.dequeue(2)] == [second]


def test_running_messages_keep_their_time_and_the_result_omits_ended_ones(session: Session) -> None:
    session.create_batch(3)
    ended, held = session.dequeue(2)
    session.value("pgqueue_message_complete", **token(ended))
    ids = [ended.id, held.id, held.id + 1, 2**62]
    assert session.ids("pgqueue_message_reschedule", ids=ids, dequeue_at=5) == [held.id + 1]
    assert session.message(held.id) == held


def test_a_message_with_an_expired_lock_keeps_its_time(session: Session) -> None:
    session.set_clock(NOON)
    session.create()
    held = session.take()
    session.set_clock(NOON + MINUTE)
    assert session.ids("pgqueue_message_reschedule", ids=[held.id], dequeue_at=2**62) == []
    assert session.take().id == held.id


def test_nothing_else_of_the_message_changes(session: Session) -> None:
    message_id = session.create(max_attempts=2)
    session.value("pgqueue_message_defer", **token(session.take()), error={"message": "late"})
    before = session.message(message_id)
    session.ids("pgqueue_message_reschedule", ids=[message_id], dequeue_at=5)
    assert session.message(message_id) == before._replace(dequeue_at=5)
