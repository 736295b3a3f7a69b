"""What was noted about lanes is worked in by the next dequeue."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tests.sql.words import arrivals, channel, contents, lanes, set_channel
from tests.support.sessions import NOON, token

if TYPE_CHECKING:
    from tests.support.fixtures.sessions import Connect
    from tests.support.sessions import Session


def arm(session: Session) -> int:
    number: int = session.value("pgqueue_lane_arm")
    return number


def test_a_lane_is_armed_for_its_earliest_message_and_not_for_the_past(session: Session) -> None:
    session.set_clock(NOON)
    session.create(channel="acme", dequeue_at=NOON + 900)
    session.create(channel="acme", dequeue_at=NOON + 500)
    session.create(channel="old", dequeue_at=-5)
    assert arm(session) == 3
    assert [lane.next_at for lane in lanes(session)] == [NOON + 500]
    assert [lane.next_at for lane in lanes(session, "old")] == [NOON]
    assert arrivals(session) == []
    assert arm(session) == 0


def test_each_kind_in_each_queue_is_a_lane(session: Session) -> None:
    for queue in ("mail", "maps"):
        session.create(channel="acme", queue=queue)
        session.create(channel="acme", queue=queue, task="shop.tasks.send")
    arm(session)
    assert [(lane.queue, lane.raw) for lane in lanes(session)] == [
        ("mail", False), ("mail", True), ("maps", False), ("maps", True)
    ]  # fmt: skip


def test_a_full_channel_is_not_armed_until_there_is_room(session: Session) -> None:
    set_channel(session, max_concurrency=1)
    session.create(1, channel="acme")
    held = session.take()
    session.create(2, channel="acme")
    arm(session)
    [lane] = lanes(session)
    assert (lane.parked, lane.next_at) == (True, None)
    session.call("pgqueue_message_complete", **token(held))
    arm(session)
    [lane] = lanes(session)
    assert lane.parked is False
    assert lane.next_at is not None


def test_room_in_one_queue_is_room_in_all(session: Session) -> None:
    set_channel(session, max_concurrency=1)
    for queue in ("mail", "maps", "music"):
        session.create(queue, channel="acme", queue=queue)
    held = session.take(queues=["mail"])
    assert session.dequeue(10, queues=["maps", "music"]) == []
    session.call("pgqueue_message_complete", **token(held))
    [held] = session.dequeue(10, queues=["maps"])
    session.call("pgqueue_message_complete", **token(held))
    assert contents(session.dequeue(10, queues=["music"])) == ["music"]


def test_a_flood_of_one_channel_does_not_block_another(session: Session) -> None:
    session.create_batch(5000, channel="flood")
    session.create("drop", channel="zoo")
    arm(session)
    assert [lane.next_at is not None for lane in lanes(session, "zoo")] == [True]
    assert len(arrivals(session)) == 4000, "the rest is for the next time"


def test_arming_waits_for_no_session(connect: Connect) -> None:
    holder, session = connect(autocommit=False), connect()
    session.rows("set lock_timeout = '2s'")
    for name in ("acme", "other"):
        session.create(name, channel=name)
    arm(session)
    holder.rows("select from pgqueue_channel where name = 'acme' for update")
    for name in ("acme", "other"):
        session.create(name, channel=name)
    arm(session)
    assert [name for name, _, _ in arrivals(session)] == ["acme"]
    holder.rollback()
    assert arm(session) == 1


def test_arming_does_not_wait_for_a_row_another_session_creates(connect: Connect) -> None:
    consumer, session = connect(autocommit=False), connect()
    session.rows("set lock_timeout = '2s'")
    session.create(1, channel="new")
    consumer.rows("select pgqueue_lane_arm()")
    assert session.dequeue() == []
    consumer.commit()
    assert contents(session.dequeue()) == [1]


def test_each_arrival_is_processed_once(connect: Connect) -> None:
    session, other = connect(autocommit=False), connect()
    other.create_batch(3, channel="acme")
    for message in other.dequeue(3):
        other.call("pgqueue_message_complete", **token(message))
    arm(session)
    assert arm(other) == 0
    session.commit()
    assert channel(other).running == 0
