"""A dequeue in a transaction that goes on: it holds what it has taken, and keeps nothing else from others."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from tests.sql.message.test_pgqueue_message_create_after import create_after
from tests.sql.words import set_channel
from tests.support.sessions import NOON, token

if TYPE_CHECKING:
    from tests.support.fixtures.sessions import Connect
    from tests.support.sessions import Session


def take(session: Session, limit: int = 1, **parameters: Any) -> list[Any]:
    return [message.content for message in session.dequeue(limit, brief=False, **parameters)]


@pytest.mark.parametrize("armed", [False, True])
def test_other_channels_go_on(connect: Connect, armed: bool) -> None:
    """Behind fresh arrivals, and behind lanes that are in line."""
    consumer, other = connect(autocommit=False), connect()
    for number in range(20):
        other.create(number, channel=f"channel {number}")
    if armed:
        other.value("pgqueue_lane_arm")
    [held] = take(consumer)
    taken = [message.content for message in other.dequeue(100)]
    assert sorted([held, *taken]) == list(range(20))
    consumer.rollback()
    assert [message.content for message in other.dequeue(100)] == [held]


def test_it_takes_as_many_messages_as_the_limits_allow(connect: Connect) -> None:
    consumer = connect(autocommit=False)
    for number in range(20):
        consumer.create(number, channel=f"channel {number % 7}")
    assert sorted(take(consumer, 100)) == list(range(20))


def test_channels_in_which_it_found_nothing_are_free(connect: Connect) -> None:
    consumer, other = connect(autocommit=False), connect()
    consumer.set_clock(NOON)
    other.set_clock(NOON)
    other.create("later", channel="acme", dequeue_at=NOON + 1000)
    set_channel(other, name="full", max_concurrency=1)
    other.create("first", channel="full")
    other.create("second", channel="full")
    [first] = other.dequeue(10)
    assert take(consumer) == []
    other.value("pgqueue_message_complete", **token(first))
    other.set_clock(NOON + 1000)
    assert sorted(message.content for message in other.dequeue(10)) == ["later", "second"]


def test_limits_hold_and_what_has_ended_makes_room(connect: Connect) -> None:
    """Where nobody else looks: it works in what is noted of the channel that it takes from."""
    session = connect(autocommit=False)
    set_channel(session, name="acme", max_concurrency=1)
    session.create_batch(3, channel="acme")
    session.commit()
    for number in range(3):
        [message] = session.dequeue(5, brief=False)
        assert message.content == number
        assert take(session, 5) == []
        session.commit()
        session.value("pgqueue_message_complete", **token(message))
        session.commit()
    assert session.rows("select name from pgqueue_channel where running not in (0, 1)") == []


def test_expired_locks_and_settled_messages_are_left_to_others(connect: Connect) -> None:
    """A lock that ran out, and messages that need not wait any more."""
    consumer, other = connect(autocommit=False), connect()
    other.set_clock(NOON)
    consumer.set_clock(NOON + 100_000)
    other.create_batch(3)
    other.dequeue(3, worker="gone")
    waiting = create_after(other, 2**62)
    take(consumer, queues=["nowhere"])
    other.set_clock(NOON + 100_000)
    assert other.value("pgqueue_message_expire") == 3
    assert waiting in [message.id for message in other.dequeue(10)]


def test_a_single_worker_still_finds_every_message(connect: Connect) -> None:
    session = connect(autocommit=False)
    session.set_clock(NOON)
    session.create_batch(3)
    session.dequeue(3, worker="gone")
    session.set_clock(NOON + 100_000)
    session.commit()
    found: set[int] = set()
    for _ in range(6):
        found.update(take(session, 5))
        session.commit()
    assert found == {0, 1, 2}
