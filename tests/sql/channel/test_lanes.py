"""Lanes take turns, within the limits of their channels."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Any

import pytest

from tests.sql.words import arrivals, channel, contents, lanes, set_channel
from tests.support.sessions import NOON, token, tokens

if TYPE_CHECKING:
    from tests.support.fixtures.sessions import Connect
    from tests.support.sessions import Session

# pgqueue_lane_arm: what was noted about lanes is worked in by the next dequeue


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


# pgqueue_lane_dequeue: lanes take turns, within the limits of their channels


def test_a_lane_goes_by_priority_then_time_then_id(session: Session) -> None:
    session.set_clock(NOON)
    for content, priority, dequeue_at in [
        ("third", 0, 5), ("second", 7, 9), ("fourth", 0, 5), ("first", 7, -3), ("later", 100, NOON + 1), ("last", -9, 0)
    ]:  # fmt: skip
        session.create(content, channel="acme", priority=priority, dequeue_at=dequeue_at)
    one_by_one = [contents(session.dequeue())[0] for _ in range(5)]
    assert one_by_one == ["first", "second", "third", "fourth", "last"]
    assert session.dequeue() == []
    session.set_clock(NOON + 1)
    assert contents(session.dequeue()) == ["later"]


def test_max_concurrency_holds_over_all_queues_and_kinds(session: Session) -> None:
    set_channel(session, max_concurrency=3)
    for queue in ("mail", "maps"):
        session.create_batch(5, channel="acme", queue=queue)
        session.create_batch(5, channel="acme", queue=queue, task="shop.tasks.send")
    held = session.dequeue(10) + session.dequeue(10, tasks=True)
    assert len(held) == 3
    assert channel(session).running == 3


@pytest.mark.parametrize("limit", [1, 7, 50])
def test_lanes_take_turns(session: Session, limit: int) -> None:
    for name in "abcdefgh":
        session.create_batch(100, channel=name)
    taken: Counter[str] = Counter()
    while sum(taken.values()) < 200:
        taken.update(message.channel for message in session.dequeue(limit))
    assert max(taken.values()) - min(taken.values()) <= 12


def test_messages_with_and_without_a_channel_share_the_batch(session: Session) -> None:
    session.create_batch(100)
    session.create_batch(100, channel="acme")
    taken = Counter(message.channel for message in session.dequeue(20))
    assert taken == {None: 10, "acme": 10}
    one_by_one = Counter(session.take().channel for _ in range(60))
    assert min(one_by_one.values()) > 10


def test_room_left_by_messages_without_a_channel_goes_to_lanes(session: Session) -> None:
    session.create_batch(3)
    session.create_batch(100, channel="acme")
    assert len(session.dequeue(20)) == 20
    session.rows("truncate pgqueue_message, pgqueue_channel, pgqueue_lane, pgqueue_arrival")
    session.create_batch(100)
    session.create_batch(3, channel="acme")
    assert len(session.dequeue(20)) == 20


def test_the_release_interval_spaces_messages_over_all_workers(connect: Connect) -> None:
    one, other = connect(), connect()
    for session in (one, other):
        session.set_clock(NOON)
    set_channel(one, release_interval_ms=100)
    one.create_batch(5, channel="acme")
    assert len(one.dequeue(10)) == 1
    for session in (one, other):
        session.set_clock(NOON + 99)
        assert session.dequeue(10) == []
    other.set_clock(NOON + 100)
    assert len(other.dequeue(10)) == 1
    one.set_clock(NOON + 150)
    assert one.dequeue(10) == []
    assert one.value("pgqueue_message_next_at") == NOON + 200


def test_the_release_interval_holds_over_all_queues(session: Session) -> None:
    session.set_clock(NOON)
    set_channel(session, release_interval_ms=100)
    for queue in ("mail", "maps"):
        session.create(queue, channel="acme", queue=queue)
    assert contents(session.dequeue(10)) in (["mail"], ["maps"])
    assert session.dequeue(10) == []
    session.set_clock(NOON + 100)
    assert len(session.dequeue(10)) == 1


def test_a_turn_is_five_messages_while_other_lanes_wait(session: Session) -> None:
    for name in "abcdefgh":
        session.create_batch(100, channel=name)
    taken = Counter(message.channel for message in session.dequeue(20))
    assert set(taken.values()) == {5}


def test_scheduled_messages_arm_their_lane_when_they_are_due(session: Session) -> None:
    session.set_clock(NOON)
    session.create("later", channel="acme", dequeue_at=NOON + 50)
    session.create("latest", channel="acme", priority=50, dequeue_at=NOON + 90)
    assert session.dequeue(10) == []
    assert session.value("pgqueue_message_next_at") == NOON + 50
    session.set_clock(NOON + 50)
    assert contents(session.dequeue(10)) == ["later"]
    assert session.value("pgqueue_message_next_at") == NOON + 90
    session.set_clock(NOON + 90)
    assert contents(session.dequeue(10)) == ["latest"]
    assert session.value("pgqueue_message_next_at") is None


def test_paused_and_excluded_queues_are_skipped(session: Session) -> None:
    for queue in ("mail", "maps", "music"):
        session.create(queue, channel="acme", queue=queue)
    session.call("pgqueue_queue_pause", queue="mail")
    assert contents(session.dequeue(10, exclude_queues=["maps"])) == ["music"]


def test_raw_messages_and_tasks_are_apart(session: Session) -> None:
    session.create("raw", channel="acme")
    session.create("task", channel="acme", task="shop.tasks.send")
    assert contents(session.dequeue(10, tasks=True)) == ["task"]
    assert contents(session.dequeue(10)) == ["raw"]


def test_a_lane_locked_by_another_session_is_skipped(connect: Connect) -> None:
    busy, session = connect(autocommit=False), connect()
    session.rows("set lock_timeout = '2s'")
    session.create_batch(10, channel="acme")
    assert len(busy.dequeue(2)) == 2
    assert session.dequeue(10) == []
    session.create("z", channel="zoo")
    assert contents(session.dequeue(10)) == ["z"]
    busy.commit()
    assert len(session.dequeue(10)) == 8


def test_a_dequeue_that_is_rolled_back_counts_nothing(connect: Connect) -> None:
    session, other = connect(autocommit=False), connect()
    set_channel(other, max_concurrency=1)
    other.create(1, channel="acme")
    assert len(session.dequeue()) == 1
    session.rollback()
    assert channel(other).running == 0
    assert contents(other.dequeue()) == [1]


def test_a_lost_attempt_frees_its_place(session: Session) -> None:
    session.set_clock(NOON)
    set_channel(session, max_concurrency=1)
    session.create_batch(2, channel="acme")
    session.dequeue(1, lock_ms=1, worker="dead")
    session.set_clock(NOON + 1)
    assert contents(session.dequeue(10, worker="alive")) == [0]
    assert channel(session).running == 1


def test_release_cancel_and_defer_free_their_places(session: Session) -> None:
    session.set_clock(NOON)
    set_channel(session, max_concurrency=3)
    session.create_batch(5, channel="acme")
    first, second, third = session.dequeue(10)
    session.call("pgqueue_message_release", **tokens([first]))
    session.call("pgqueue_message_cancel", **token(second))
    session.call("pgqueue_message_defer", **token(third), dequeue_at=NOON + 500)
    assert contents(session.dequeue(10)) == [0, 3, 4]


def test_a_lane_after_its_turn_is_behind_lanes_that_came_meanwhile(session: Session) -> None:
    session.set_clock(NOON)
    session.create_batch(100, channel="flood")
    session.dequeue(5)
    session.set_clock(NOON + 1)
    session.create("drop", channel="zoo")
    session.set_clock(NOON + 2)
    assert "drop" in contents(session.dequeue(20))


def test_a_lane_that_is_not_armed_has_no_waiting_message(session: Session) -> None:
    session.create(channel="acme")
    held = session.take()
    [lane] = lanes(session)
    assert lane.next_at is None
    session.call("pgqueue_message_complete", **token(held))
    session.dequeue()
    assert session.value("pgqueue_message_next_at") is None


def test_an_empty_lane_hides_no_other_lane_of_its_channel(session: Session) -> None:
    """They share one turn a round: when the first one comes to nothing there is another round."""
    queues = [f"queue-{n}" for n in range(8)]
    for n in range(3):
        created = [session.create(n, channel="acme", queue=queue) for queue in queues]
        assert session.dequeue(queues=["another"]) == [], "that has armed them all"
        for queue in queues:
            session.create("later", queue=queue, dequeue_at=2**62)
        session.ids("pgqueue_message_cancel", ids=created[1:])
        assert contents(session.dequeue(5)) == [n]


def test_a_release_interval_does_not_lift_max_concurrency(session: Session) -> None:
    """The second lane is not halted by the turn of the first one, and has its own when the interval is over."""
    set_channel(session, max_concurrency=1, release_interval_ms=100)
    session.set_clock(NOON)
    for queue in ("mail", "maps"):
        session.create_batch(2, channel="acme", queue=queue)
    assert len(session.dequeue(10)) == 1
    session.set_clock(NOON + 100)
    assert session.dequeue(10) == []
    assert channel(session).running == 1


@pytest.mark.parametrize("chosen", [{}, {"exclude_queues": ["nowhere"]}, {"queues": list("abcdef")}])
@pytest.mark.parametrize("brief", [True, False])
def test_every_queue_with_waiting_lanes_has_a_turn(session: Session, chosen: dict[str, Any], *, brief: bool) -> None:
    for n in range(60):
        for queue in "abcdef":
            session.create(n, channel=f"of {queue}", queue=queue)
    taken = Counter(session.dequeue(1, brief=brief, **chosen)[0].queue for _ in range(80))
    assert len(taken) == 6  # missed by chance once in 300,000


def test_lanes_of_an_excluded_queue_do_not_hide_one_behind_a_locked_row(connect: Connect) -> None:
    session, other = connect(), connect(autocommit=False)
    session.create(channel="locked", queue="a")
    session.create("found", channel="free", queue="b")
    assert session.dequeue(0) == []
    session.rows("""
        insert into pgqueue_channel (name) select 'paused ' || n from generate_series(1, 999) as n;
        insert into pgqueue_lane (channel, queue, raw, next_at)
        select 'paused ' || n, 'paused', true, 0 from generate_series(1, 999) as n
    """)
    session.rows("select pgqueue_lane_arm()")
    session.rows("update pgqueue_lane set next_at = 1 where channel = 'locked'")
    session.rows("update pgqueue_lane set next_at = 2 where channel = 'free'")
    other.rows("select from pgqueue_channel where name = 'locked' for update")
    assert contents(session.dequeue(2, exclude_queues=["paused"])) == ["found"]
    other.rollback()


@pytest.mark.parametrize("brief", [True, False])
def test_a_session_goes_on_when_the_table_of_messages_gets_a_column(session: Session, brief: bool) -> None:
    """It keeps the plans of its claims."""
    for content in ("before", "after"):
        session.create(content, channel="acme")
        assert contents(session.dequeue(10, brief=brief)) == [content]
        session.rows(f"alter table pgqueue_message add column {content} integer")
