"""Messages that wait are withdrawn, and consumers of messages that run are asked to stop."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.support.sessions import NOON, token, tokens

if TYPE_CHECKING:
    from tests.support.fixtures.sessions import Connect
    from tests.support.sessions import Session

# pgqueue_message_cancel: messages that wait are withdrawn


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


def test_the_result_for_many_omits_running_and_ended_messages(session: Session) -> None:
    ids = session.create_batch(4)
    session.take()
    assert sorted(session.ids("pgqueue_message_cancel", ids=[*reversed(ids), 2**62])) == ids[1:]
    assert session.ids("pgqueue_message_cancel", ids=[]) == []
    assert [message.id for message in session.messages()] == ids[:1]


# pgqueue_message_request_cancel: consumers of messages that run are asked to stop


def held_and_asked(session: Session) -> dict[str, object]:
    """The token of a message that somebody wants cancelled."""
    session.set_clock(NOON)
    session.create({"n": 1})
    held = session.take(worker="w1")
    assert session.ids("pgqueue_message_request_cancel", ids=[held.id]) == [held.id]
    return token(held)


def test_only_running_messages_get_the_request(session: Session) -> None:
    ids = session.create_batch(3)
    running = session.take()
    done = session.take()
    session.value("pgqueue_message_complete", **token(done))
    assert session.ids("pgqueue_message_request_cancel", ids=[*ids, 2**62]) == [running.id]


def test_a_second_request_keeps_the_time_of_the_first(session: Session) -> None:
    held = held_and_asked(session)
    session.set_clock(NOON + 1000)
    session.ids("pgqueue_message_request_cancel", ids=[held["id"]])
    assert session.one("select pgqueue_to_epoch(cancel_requested_at) from pgqueue_message") == NOON


def test_a_consumer_that_gives_up_ends_the_attempt_as_cancelled(session: Session) -> None:
    held = held_and_asked(session)
    assert session.value("pgqueue_message_cancel", **held, error={"message": "asked to"}) is True
    [end] = session.history()
    assert (end.status, end.final, end.content, end.worker) == ("cancelled", True, {"n": 1}, "w1")
    assert end.error_message == "asked to"


@pytest.mark.parametrize("error", [None, {"message": "no network"}])
def test_a_deferred_message_is_cancelled_instead(session: Session, error: dict[str, str] | None) -> None:
    assert session.value("pgqueue_message_defer", **held_and_asked(session), error=error) == "cancelled"
    assert session.messages() == []
    assert [(end.status, end.final, end.content) for end in session.history()] == [("cancelled", True, {"n": 1})]


def test_a_lost_message_is_cancelled_instead_of_run_again(session: Session) -> None:
    held_and_asked(session)
    session.set_clock(NOON + 60_000)
    assert session.dequeue() == []
    assert [(end.status, end.final) for end in session.history()] == [("cancelled", True)]


@pytest.mark.parametrize(("end", "status"), [("complete", "succeeded"), ("fail", "failed")])
def test_a_message_that_completes_or_fails_keeps_that_status(session: Session, end: str, status: str) -> None:
    assert session.value(f"pgqueue_message_{end}", **held_and_asked(session)) is True
    assert [ended.status for ended in session.history()] == [status]


# pgqueue_message_cancellations: consumers look whether they were asked to stop


def test_each_consumer_gets_the_requests_for_its_messages(session: Session) -> None:
    ids = session.create_batch(4)
    session.dequeue(3, worker="w1")
    session.dequeue(1, worker="w2")
    assert session.ids("pgqueue_message_cancellations", ids=ids, worker="w1") == []
    session.ids("pgqueue_message_request_cancel", ids=[ids[1], ids[3]])
    assert session.ids("pgqueue_message_cancellations", ids=ids, worker="w1") == [ids[1]]
    assert session.ids("pgqueue_message_cancellations", ids=ids, worker="w2") == [ids[3]]
    assert session.ids("pgqueue_message_cancellations", ids=ids[2:], worker="w1") == []


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
