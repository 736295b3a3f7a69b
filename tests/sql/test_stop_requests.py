"""What was asked to stop is not begun again, however it comes back."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tests.support.sessions import tokens

if TYPE_CHECKING:
    from tests.support.fixtures.sessions import Connect
    from tests.support.sessions import Session


def test_a_released_message_that_was_asked_to_stop_is_cancelled(session: Session) -> None:
    ids = session.create_batch(3)
    held = session.dequeue(3, worker="w1")
    session.ids("pgqueue_message_request_cancel", ids=ids[1:2])
    assert sorted(session.ids("pgqueue_message_release", **tokens(held))) == ids
    assert [message.content for message in session.dequeue(5)] == [0, 2]
    [end] = session.history()
    assert (end.message_id, end.status, end.final, end.content) == (ids[1], "cancelled", True, 1)
    assert (end.attempt, end.worker, end.started_at) == (0, None, None), "it never ran"


def test_reading_the_stop_requests_locks_nothing_and_does_not_wait(connect: Connect) -> None:
    asking, other = connect(autocommit=False), connect(autocommit=False)
    ids = other.create_batch(1)
    other.dequeue(worker="w1")
    other.commit()
    for session in (asking, other):
        session.rows("set lock_timeout = '500ms'")
    assert asking.ids("pgqueue_message_cancellations", ids=ids, worker="w1") == []
    assert other.ids("pgqueue_message_request_cancel", ids=ids) == ids
    assert asking.ids("pgqueue_message_cancellations", ids=ids, worker="w1") == []
    other.commit()
    assert asking.ids("pgqueue_message_cancellations", ids=ids, worker="w1") == ids
