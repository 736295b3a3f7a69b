"""What runs is counted anew."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tests.sql.lanes import channel, contents, drifted, set_channel
from tests.support.sessions import token

if TYPE_CHECKING:
    from tests.support.fixtures.sessions import Connect
    from tests.support.sessions import Session


def repair(session: Session, **parameters: str) -> list[tuple[str, int, int]]:
    return [tuple(row) for row in session.call("pgqueue_channel_repair", **parameters)]


def test_a_correct_count_is_unchanged_and_not_reported(session: Session) -> None:
    set_channel(session, max_concurrency=2)
    session.create_batch(3, channel="acme")
    first, _ = session.dequeue(10)
    session.call("pgqueue_message_complete", **token(first))
    assert repair(session) == []
    assert len(session.dequeue(10)) == 1
    assert drifted(session) == []


def test_a_wrong_count_is_corrected(session: Session) -> None:
    set_channel(session, max_concurrency=2)
    session.create_batch(4, channel="acme")
    session.dequeue(10)
    session.rows("update pgqueue_channel set running = 7")
    assert repair(session) == [("acme", 7, 2)]
    assert channel(session).running == 2


def test_after_a_truncate_the_channel_takes_work_again(session: Session) -> None:
    set_channel(session, max_concurrency=1)
    session.create(channel="acme")
    session.dequeue()
    session.rows("truncate pgqueue_message")
    session.create("new", channel="acme")
    assert session.dequeue() == [], "it is still thought to be full"
    assert repair(session, name="acme") == [("acme", 1, 0)]
    assert contents(session.dequeue()) == ["new"]


def test_messages_that_came_while_the_triggers_were_off_are_found(session: Session) -> None:
    session.rows("alter table pgqueue_message disable trigger user")
    session.create("unseen", channel="acme")
    session.rows("alter table pgqueue_message enable trigger user")
    assert session.dequeue() == []
    assert repair(session) == []
    assert contents(session.dequeue()) == ["unseen"]


def test_an_uncommitted_end_counts_as_running(connect: Connect) -> None:
    consumer, session = connect(autocommit=False), connect()
    session.create(channel="acme")
    held = session.take()
    consumer.call("pgqueue_message_complete", **token(held))
    assert repair(session) == []
    consumer.commit()
    session.dequeue()
    assert (channel(session).running, drifted(session)) == (0, [])
