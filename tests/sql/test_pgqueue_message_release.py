"""Messages that were not started are given back."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tests.sql.sessions import NOON, tokens

if TYPE_CHECKING:
    from tests.sql.sessions import Session


def test_they_are_ready_where_they_were_in_the_queue(session: Session) -> None:
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


def test_the_answer_misses_exactly_those_that_were_not_ours(session: Session) -> None:
    session.set_clock(NOON)
    session.create_batch(3)
    ours, theirs = session.dequeue(1, worker="w1"), session.dequeue(1, worker="w2")
    waiting = [message for message in session.messages() if message.worker is None]
    assert session.ids("pgqueue_message_release", **tokens([*ours, *theirs, *waiting])) == [ours[0].id]
    assert session.messages()[1:] == [*theirs, *waiting]
