"""Channels have limits, room, and an end."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import psycopg
import pytest

from django_pgqueue.functions.channel import UNSEEN
from tests.sql.words import channel, contents, drifted, lanes, see, set_channel
from tests.support.cost import cost, index_names
from tests.support.sessions import NOON, Listener, token

if TYPE_CHECKING:
    from tests.support.fixtures.sessions import Connect
    from tests.support.sessions import Session

# pgqueue_channel_set: limits of a channel


def test_all_limits_are_set_at_once(session: Session) -> None:
    set_channel(session, max_concurrency=1, max_size=2, release_interval_ms=3)
    set_channel(session, max_size=4)
    row = channel(session)
    assert (row.max_concurrency, row.max_size, row.release_interval_ms) == (None, 4, None)


@pytest.mark.parametrize("limit", ["max_concurrency", "max_size", "release_interval_ms"])
def test_a_limit_below_zero_is_refused(session: Session, limit: str) -> None:
    limits: dict[str, Any] = {limit: -1}
    with pytest.raises(psycopg.errors.CheckViolation):
        set_channel(session, **limits)


def test_a_new_limit_applies_from_now_on_and_running_messages_go_on(session: Session) -> None:
    session.create_batch(4, channel="acme")
    held = session.dequeue(3)
    assert len(held) == 3
    set_channel(session, max_concurrency=1)
    for message in held:
        assert session.dequeue(10) == []
        session.call("pgqueue_message_complete", **token(message))
    assert contents(session.dequeue(10)) == [3]


def test_a_higher_limit_applies_at_once_and_wakes_a_worker(connect: Connect) -> None:
    session, sleeper = connect(), connect()
    set_channel(session, max_concurrency=0)
    session.create_batch(5, channel="acme", task="shop.tasks.send")
    assert session.dequeue(10, tasks=True) == []
    see(session, "w9", asleep_ms=60_000)
    listener = Listener(sleeper, "pgqueue_w9")
    set_channel(session, max_concurrency=3)
    assert listener.heard(session) == [("pgqueue_w9", "default")]
    assert len(session.dequeue(10, tasks=True)) == 3


def test_a_shorter_interval_does_not_wait_for_the_longer_one(session: Session) -> None:
    session.set_clock(NOON)
    set_channel(session, release_interval_ms=3_600_000)
    session.create_batch(2, channel="acme")
    assert len(session.dequeue(10)) == 1
    set_channel(session, release_interval_ms=100)
    session.set_clock(NOON + 100)
    assert len(session.dequeue(10)) == 1


def test_an_interval_that_is_taken_away_is_not_waited_for(session: Session) -> None:
    session.set_clock(NOON)
    session.create_batch(2, channel="acme")
    set_channel(session, release_interval_ms=3_600_000)
    assert len(session.dequeue(10)) == 1, "the first one waits for nothing"
    set_channel(session)
    assert len(session.dequeue(10)) == 1


def test_setting_limits_blocks_only_dequeues_of_this_channel(connect: Connect) -> None:
    setter, other = connect(autocommit=False), connect()
    other.create("a", channel="acme")
    other.create("b", channel="other")
    set_channel(setter, max_concurrency=1)
    assert other.create("c", channel="acme") is not None
    assert contents(other.dequeue(10)) == ["b"]
    setter.commit()
    assert contents(other.dequeue(10)) == ["a"]


def test_a_concurrent_creation_of_a_channel_blocks_no_dequeue(connect: Connect) -> None:
    setter, other = connect(autocommit=False), connect()
    set_channel(setter, "new", max_concurrency=1)
    other.rows("set lock_timeout = '2s'")
    other.create_batch(2, channel="new")
    assert other.dequeue(10) == []
    setter.commit()
    assert len(other.dequeue(10)) == 1


# pgqueue_channel_room: how many messages a channel takes, and what happens to those that it refuses


def room(session: Session, name: str = "acme") -> int | None:
    answer: int | None = session.value("pgqueue_channel_room", name=name)
    return answer


def test_a_channel_without_limits_has_unlimited_room(session: Session) -> None:
    assert room(session) is None
    session.create(channel="acme")
    session.take()
    assert room(session) is None


def test_waiting_messages_take_room_and_running_ones_do_not(session: Session) -> None:
    set_channel(session, max_size=3)
    session.create(channel="acme")
    session.create(channel="acme", queue="mail")
    session.create(channel="other")
    session.create()
    assert room(session) == 1
    session.take(queues=["mail"])
    assert room(session) == 2


def test_a_full_channel_refuses_without_an_error(connect: Connect) -> None:
    session, other = connect(autocommit=False), connect()
    set_channel(session, max_size=1)
    assert session.create("first", channel="acme") is not None
    refused = {
        "one": session.value("pgqueue_message_create", content=1, channel="acme"),
        "unique": session.call("pgqueue_message_create_unique", unique_key="k", content=1, channel="acme")[0].p_id,
        "after": session.value("pgqueue_message_create_after", after_ids=[1], content=1, channel="acme"),
    }
    assert refused == dict.fromkeys(refused)
    session.create("of another channel", channel="other")
    session.commit()
    assert sorted(m.content for m in other.messages()) == ["first", "of another channel"]


def test_a_bulk_enqueues_as_many_messages_as_there_is_room(session: Session) -> None:
    set_channel(session, max_size=2)
    set_channel(session, "small", max_size=1)
    session.create(channel="acme")
    where = ["acme", None, "small", "acme", "small", "free", "acme", None]
    ids = session.ids(
        "pgqueue_message_create_many", messages=[{"content": n, "channel": name} for n, name in enumerate(where)]
    )
    assert [id_ is not None for id_ in ids] == [True, True, True, False, False, True, False, True]
    by_id = {m.id: m.content for m in session.messages()}
    assert [by_id[id_] for id_ in ids if id_ is not None] == [0, 1, 2, 5, 7]


def test_the_last_messages_of_a_uniform_bulk_are_refused(session: Session) -> None:
    set_channel(session, max_size=2)
    ids = session.rows("select pgqueue_message_create_many('[1, 2, 3, 4]', 'default', p_channel => 'acme')")
    assert [row[0] is None for row in ids] == [False, False, True, True]
    assert [m.content for m in session.messages()] == [1, 2]


def test_messages_with_keys_in_a_bulk_are_refused_too(session: Session) -> None:
    set_channel(session, max_size=1)
    messages = [{"content": n, "channel": "acme", "unique_key": f"k{n}"} for n in range(3)]
    assert [id_ is None for id_ in session.ids("pgqueue_message_create_many", messages=messages)] == [False, True, True]


def test_a_held_key_returns_its_message_even_if_the_channel_is_full(session: Session) -> None:
    set_channel(session, max_size=1)
    first = session.call("pgqueue_message_create_unique", unique_key="k", content=1, channel="acme")[0]
    again = session.call("pgqueue_message_create_unique", unique_key="k", content=2, channel="acme")[0]
    assert (again.p_id, again.p_created) == (first.p_id, False)


def test_a_deferred_message_returns_into_a_full_channel(session: Session) -> None:
    set_channel(session, max_size=1)
    session.create(1, channel="acme", max_attempts=3)
    held = session.take()
    session.create(2, channel="acme")
    assert session.value("pgqueue_message_defer", **token(held), error={"message": "no"}) == "retried"
    assert room(session) == 0


def test_open_enqueues_of_others_are_neither_counted_nor_awaited(connect: Connect) -> None:
    one, other = connect(autocommit=False), connect(autocommit=False)
    set_channel(one, max_size=1)
    one.commit()
    assert one.create(channel="acme") is not None
    assert other.create(channel="acme") is not None
    one.commit()
    other.commit()
    assert room(one) == 0


# pgqueue_channel_release: a channel is given up


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


# pgqueue_channel_prune: channels that have no messages and no limits go


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


# pgqueue_channel_repair: what runs is counted anew


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


HOUR_MS = 3_600_000


def test_a_channel_waits_no_longer_than_its_interval_after_a_clock_that_was_ahead(session: Session) -> None:
    session.set_clock(NOON)
    set_channel(session, release_interval_ms=1000)
    session.create_batch(3, channel="acme")
    session.set_clock(NOON + 1000 * HOUR_MS)
    assert len(session.dequeue(10)) == 1
    repair(session)
    assert session.dequeue(10) == [], "the interval is kept"
    assert unseen(session) == []
    session.set_clock(NOON)
    assert unseen(session) == ["acme"]
    repair(session)
    assert session.dequeue(10) == []
    session.set_clock(NOON + 1000)
    assert len(session.dequeue(10)) == 1


def test_also_a_channel_that_has_no_message_now(session: Session) -> None:
    session.set_clock(NOON)
    set_channel(session, release_interval_ms=1000)
    session.rows("update pgqueue_channel set release_at = %s", [NOON + 1000 * HOUR_MS])
    assert unseen(session) == ["acme"]
    repair(session)
    assert unseen(session) == []


def unseen(session: Session) -> list[str]:
    return session.column(UNSEEN, [10])


def create_unseen(session: Session, **parameters: Any) -> None:
    session.rows("alter table pgqueue_message disable trigger user")
    session.create("unseen", channel="acme", **parameters)
    session.rows("alter table pgqueue_message enable trigger user")


def test_no_time_of_a_message_stops_the_look(session: Session) -> None:
    for number in (1, 2):
        session.create(channel=f"c{number}", dequeue_at=2**63 - 1000 * number)
    session.dequeue()
    assert unseen(session) == []


@pytest.mark.parametrize("after_ms", [None, HOUR_MS])
def test_messages_that_no_trigger_noted_are_found(session: Session, after_ms: int | None) -> None:
    session.set_clock(NOON)
    create_unseen(session, dequeue_at=after_ms and NOON + after_ms)
    assert unseen(session) == ["acme"]
    repair(session)
    assert unseen(session) == []


@pytest.mark.parametrize("priority", [0, 5])
def test_they_are_found_beside_messages_that_are_due_later(session: Session, priority: int) -> None:
    session.set_clock(NOON)
    session.create(channel="acme", priority=priority, dequeue_at=NOON + HOUR_MS)
    session.dequeue()
    assert unseen(session) == []
    create_unseen(session)
    assert session.dequeue() == []
    assert unseen(session) == ["acme"]
    repair(session)
    assert contents(session.dequeue()) == ["unseen"]


def test_those_of_a_channel_whose_row_somebody_has_deleted_are_found(session: Session) -> None:
    session.create("waits", channel="acme")
    session.value("pgqueue_lane_arm")
    session.rows("delete from pgqueue_channel")
    assert session.dequeue() == []
    assert unseen(session) == ["acme"]
    repair(session)
    assert contents(session.dequeue()) == ["waits"]


def test_they_are_found_behind_a_message_that_waits_for_another(session: Session) -> None:
    first = session.create("first")
    session.call("pgqueue_message_create_after", content="waits", after_ids=[first], channel="acme", priority=5)
    assert unseen(session) == []
    create_unseen(session)
    assert unseen(session) == ["acme"]


def test_channels_in_order_are_not_among_them(session: Session) -> None:
    """Also where a lane waits for its interval, for room, or for others."""
    session.set_clock(NOON)
    set_channel(session, release_interval_ms=HOUR_MS)
    set_channel(session, name="full", max_concurrency=1)
    for wanted in [{}, {}, {"priority": 5, "dequeue_at": NOON + 2 * HOUR_MS}]:
        for name in ("acme", "full"):
            session.create(channel=name, **wanted)
        assert unseen(session) == []
        session.dequeue(10)
        assert unseen(session) == []
    [held] = session.rows("select * from pgqueue_message where channel = 'full' and unlock_at is not null")
    session.value("pgqueue_message_complete", **token(held))
    assert unseen(session) == []
    session.set_clock(NOON + HOUR_MS)
    assert len(session.dequeue(10)) == 2
    assert unseen(session) == []


def test_a_probe_for_each_priority_of_a_lane_finds_them(connect: Connect) -> None:
    session = connect()
    session.rows("""
        insert into pgqueue_message (queue, content, channel, priority, dequeue_at)
        select 'default', '{}', 'c' || n % 5, n % 3, 0 from generate_series(1, 6000) as n
    """)
    for _ in range(2):
        statement = UNSEEN.replace("%s", "10")
        assert {"pgqueue_message", "pgqueue_arrival"}.isdisjoint(index_names(session, statement))
        found = cost(session, statement)
        assert found.entries["pgqueue_message_lane_ix"] == 5, "nothing else is read where arrivals tell of all lanes"
        session.rows("analyze pgqueue_message, pgqueue_lane, pgqueue_arrival")
    session.rows("delete from pgqueue_arrival")
    assert (found := cost(session, statement)).rows == 5
    assert found.entries["pgqueue_message_lane_ix"] == 5 + 5 * 3


def test_an_uncommitted_end_counts_as_running(connect: Connect) -> None:
    consumer, session = connect(autocommit=False), connect()
    session.create(channel="acme")
    held = session.take()
    consumer.call("pgqueue_message_complete", **token(held))
    assert repair(session) == []
    consumer.commit()
    session.dequeue()
    assert (channel(session).running, drifted(session)) == (0, [])
