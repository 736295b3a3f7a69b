"""The queue inside transactions of the application that have a higher isolation level."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

import psycopg
import pytest

from tests.support.sessions import concurrently, token, tokens

if TYPE_CHECKING:
    from tests.support.fixtures.sessions import Connect
    from tests.support.sessions import Session


def test_a_single_session_works_at_every_isolation_level(strict: Session, connect: Connect) -> None:
    strict.create_batch(4)
    strict.commit()
    held = strict.dequeue(4, worker="w1")
    strict.commit()
    strict.ids("pgqueue_message_heartbeat", **tokens(held))
    strict.value("pgqueue_message_complete", **token(held[0]))
    strict.value("pgqueue_message_defer", **token(held[1]))
    strict.value("pgqueue_message_fail", **token(held[2]))
    strict.ids("pgqueue_message_release", **tokens(held[3:]))
    strict.commit()
    other = connect()
    assert [message.id for message in other.messages()] == [held[1].id, held[3].id]
    assert [end.status for end in other.history()] == ["succeeded", "deferred", "failed"]


def test_a_message_taken_meanwhile_is_a_serialization_failure_and_a_retry_works(
    strict: Session, connect: Connect
) -> None:
    other = connect()
    first, second = other.create_batch(2)
    strict.rows("select count(*) from pgqueue_message")  # the transaction sees the queue as it is now
    taken = other.take()

    with pytest.raises(psycopg.errors.SerializationFailure):
        strict.dequeue()
    strict.rollback()

    assert taken.id == first
    assert strict.take().id == second
    strict.commit()
    assert {message.attempt for message in other.messages()} == {1}


def test_a_message_that_another_session_is_taking_is_skipped(strict: Session, connect: Connect) -> None:
    other = connect(autocommit=False)
    first, second = other.create_batch(2)
    other.commit()
    assert other.take().id == first
    assert strict.take().id == second


def test_consumers_that_try_again_after_errors_do_everything_once(strict: Session, connect: Connect) -> None:
    other, consumers = connect(), [strict, *(connect(autocommit=False) for _ in range(3))]
    for consumer in consumers:
        consumer.connection.isolation_level = strict.connection.isolation_level
    ids = other.create_batch(120)

    def consume(session: Session) -> list[int]:
        done: list[int] = []
        while (completed := _in_one_transaction(session)) is not None:
            done += completed
        return done

    done = concurrently([partial(consume, consumer) for consumer in consumers], seconds=100)

    assert sorted(message_id for each in done for message_id in each) == ids
    assert sorted(end.message_id for end in other.history()) == ids


def _in_one_transaction(session: Session) -> list[int] | None:
    """Takes and completes a few messages; none, when the transaction has to be tried again; None at the end."""
    try:
        batch: list[Any] = session.dequeue(3, worker=f"w{session.pid}")
        completed = session.ids("pgqueue_message_complete", **tokens(batch)) if batch else []
        more = session.one("select exists (select from pgqueue_message)")
        session.commit()
    except psycopg.errors.SerializationFailure:
        session.rollback()
        return []
    return completed if completed or more else None
