"""A transaction keeps a message."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import psycopg
import pytest

from tests.support.sessions import NOON, token, tokens

if TYPE_CHECKING:
    from tests.support.fixtures.sessions import Connect
    from tests.support.sessions import Session

MINUTE = 60_000


@pytest.fixture
def other(connect: Connect) -> Session:
    session = connect()
    session.rows("set lock_timeout = '2s'")
    session.set_clock(NOON)
    session.create(max_attempts=5)
    return session


def test_a_kept_message_is_not_taken_over_and_can_be_ended(strict: Session, other: Session) -> None:
    held = other.take(worker="w1")
    assert strict.value("pgqueue_message_keep", **token(held)) is True
    other.set_clock(NOON + 100 * MINUTE)
    assert other.dequeue() == []
    assert strict.value("pgqueue_message_complete", **token(held)) is True
    strict.commit()
    assert [end.status for end in other.history()] == ["succeeded"]


def test_after_the_transaction_others_take_the_message_over(strict: Session, other: Session) -> None:
    held = other.take(worker="w1")
    strict.value("pgqueue_message_keep", **token(held))
    other.set_clock(NOON + MINUTE)
    assert other.dequeue() == []
    strict.rollback()
    assert other.take(worker="w2").id == held.id
    assert [end.status for end in other.history()] == ["lost"]


def test_a_request_to_cancel_passes_and_the_message_cannot_be_ended(strict: Session, other: Session) -> None:
    held = other.take(worker="w1")
    strict.value("pgqueue_message_keep", **token(held))
    assert other.ids("pgqueue_message_request_cancel", ids=[held.id]) == [held.id]
    with pytest.raises(psycopg.errors.SerializationFailure):
        strict.value("pgqueue_message_complete", **token(held))


def test_changes_before_the_call_do_not_matter(strict: Session, other: Session) -> None:
    held = other.take(worker="w1")
    other.value("pgqueue_message_heartbeat", **token(held))
    strict.value("pgqueue_message_keep", **token(held))
    assert strict.value("pgqueue_message_complete", **token(held)) is True


@pytest.mark.parametrize("change", [{"id": 0}, {"attempt": 2}, {"worker": "w2"}, {"worker": None}], ids=str)
def test_a_worker_that_does_not_hold_the_message_cannot_keep_it(other: Session, change: dict[str, Any]) -> None:
    assert other.value("pgqueue_message_keep", **{**token(other.take(worker="w1")), **change}) is False


def test_without_a_worker_name_the_session_is_the_holder(other: Session) -> None:
    held = token(other.take())
    assert other.value("pgqueue_message_keep", id=held["id"], attempt=held["attempt"]) is True


def test_a_message_released_meanwhile_cannot_be_ended(strict: Session, other: Session) -> None:
    held = other.take(worker="w1")
    strict.value("pgqueue_message_keep", **token(held))
    assert other.ids("pgqueue_message_release", **tokens([held])) == [held.id]
    with pytest.raises(psycopg.errors.SerializationFailure):
        strict.value("pgqueue_message_complete", **token(held))
    strict.rollback()
    assert strict.value("pgqueue_message_keep", **token(held)) is False
