"""Channels that have no messages and no limits go."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tests.sql.lanes import channel, lanes, set_channel
from tests.support.sessions import token

if TYPE_CHECKING:
    from tests.support.fixtures.sessions import Connect
    from tests.support.sessions import Session


def test_only_empty_channels_without_limits_are_deleted(session: Session) -> None:
    set_channel(session, "set")
    for name in ("waiting", "running", "noted", "ended"):
        session.create(name, channel=name, queue=name)
    session.take(queues=["running"])
    session.call("pgqueue_message_complete", **token(session.take(queues=["ended"])))
    session.dequeue(1, queues=["nowhere"])
    session.call("pgqueue_message_create", content=1, channel="noted", queue="noted")
    assert session.value("pgqueue_channel_prune") == 1
    left = session.column("select name from pgqueue_channel order by name")
    assert left == ["noted", "running", "set", "waiting"]
    assert lanes(session, "ended") == []


def test_a_message_committed_later_recreates_the_channel(connect: Connect) -> None:
    producer, session = connect(autocommit=False), connect()
    session.create(channel="acme")
    session.call("pgqueue_message_complete", **token(session.take()))
    session.dequeue()
    producer.create("late", channel="acme")
    assert session.value("pgqueue_channel_prune", name="acme") == 1
    producer.commit()
    assert session.take().content == "late"
    assert channel(session).running == 1


def test_channels_locked_by_another_session_are_left_for_the_next_call(connect: Connect) -> None:
    consumer, session = connect(autocommit=False), connect()
    session.create(channel="acme")
    session.call("pgqueue_message_complete", **token(session.take()))
    session.dequeue()
    consumer.rows("select from pgqueue_channel for update")
    assert session.value("pgqueue_channel_prune") == 0
    consumer.rollback()
    consumer.rows("select from pgqueue_lane for update")
    assert session.value("pgqueue_channel_prune") == 0
    consumer.rollback()
    assert session.value("pgqueue_channel_prune") == 1
