"""A channel is given up."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tests.sql.lanes import channel, contents, lanes, set_channel
from tests.support.sessions import token

if TYPE_CHECKING:
    from tests.support.fixtures.sessions import Connect
    from tests.support.sessions import Session


def release(session: Session, name: str = "acme") -> bool | None:
    answer: bool | None = session.value("pgqueue_channel_release", name=name)
    return answer


def test_an_unknown_channel_returns_null(session: Session) -> None:
    assert release(session) is None


def test_an_empty_channel_is_deleted_at_once(session: Session) -> None:
    set_channel(session, max_concurrency=1)
    session.create(channel="acme")
    session.call("pgqueue_message_complete", **token(session.take()))
    assert release(session) is True
    assert (channel(session), lanes(session)) == (None, [])


def test_a_released_channel_takes_no_new_messages_and_is_deleted_when_drained(session: Session) -> None:
    set_channel(session, max_concurrency=2)
    session.create_batch(3, channel="acme")
    held = session.dequeue(10)
    assert release(session) is False
    assert session.value("pgqueue_message_create", content="new", channel="acme") is None
    session.call("pgqueue_message_complete", **token(held[0]))
    [last] = session.dequeue(10)
    for message in (held[1], last):
        assert channel(session) is not None
        session.call("pgqueue_message_complete", **token(message))
    assert session.dequeue(10) == []
    assert (channel(session), lanes(session)) == (None, [])


def test_retries_in_a_released_channel_still_run(session: Session) -> None:
    session.create(1, channel="acme")
    held = session.take()
    assert release(session) is False
    session.call("pgqueue_message_defer", **token(held), error={"message": "no"})
    assert contents(session.dequeue(10)) == [1]


def test_a_released_channel_is_deleted_when_its_last_message_is_cancelled(session: Session) -> None:
    message = session.create(channel="acme", dequeue_at=2**62)
    session.dequeue(1)
    assert release(session) is False
    assert session.value("pgqueue_message_cancel", id=message) is True
    session.dequeue(1)
    assert channel(session) is None


def test_a_message_enqueued_before_and_committed_later_is_not_lost(connect: Connect) -> None:
    producer, session = connect(autocommit=False), connect()
    set_channel(session, max_concurrency=1)
    producer.create("late", channel="acme")
    assert release(session) is True
    producer.commit()
    assert contents(session.dequeue(10)) == ["late"]


def test_set_channel_undoes_the_release(session: Session) -> None:
    session.create(channel="acme")
    session.dequeue(1)
    release(session)
    set_channel(session)
    assert session.create(channel="acme") is not None
