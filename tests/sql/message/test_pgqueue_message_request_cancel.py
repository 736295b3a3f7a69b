"""Consumers of messages that run are asked to stop."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.support.sessions import NOON, token

if TYPE_CHECKING:
    from tests.support.sessions import Session

MINUTE = 60_000


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
    session.set_clock(NOON + MINUTE)
    assert session.dequeue() == []
    assert [(end.status, end.final) for end in session.history()] == [("cancelled", True)]


@pytest.mark.parametrize(("end", "status"), [("complete", "succeeded"), ("fail", "failed")])
def test_a_message_that_completes_or_fails_keeps_that_status(session: Session, end: str, status: str) -> None:
    assert session.value(f"pgqueue_message_{end}", **held_and_asked(session)) is True
    assert [ended.status for ended in session.history()] == [status]
