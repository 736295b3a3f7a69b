"""Changes of a message in a channel are noted, in the same transaction."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tests.sql.words import arrivals, channel, drifted, see, set_channel
from tests.support.sessions import NOON, Listener, token

if TYPE_CHECKING:
    from tests.support.fixtures.sessions import Connect
    from tests.support.sessions import Session


def test_messages_without_a_channel_record_no_arrival(session: Session) -> None:
    session.create()
    held = session.take()
    session.call("pgqueue_message_defer", **token(held))
    session.call("pgqueue_message_complete", **token(session.take()))
    assert arrivals(session) == []


def test_a_new_message_is_recorded_with_its_time(session: Session) -> None:
    session.create(channel="acme", dequeue_at=NOON)
    assert arrivals(session) == [("acme", 0, NOON)]


def test_a_message_with_dependencies_is_recorded_when_it_becomes_ready(session: Session) -> None:
    session.set_clock(NOON)
    session.call("pgqueue_message_create_after", after_ids=[1], content=1, channel="acme")
    assert arrivals(session) == []
    session.call("pgqueue_message_settle")
    assert arrivals(session) == [("acme", 0, NOON)]


def test_an_end_is_recorded_with_the_time_of_the_next_attempt(session: Session) -> None:
    session.create_batch(3, channel="acme", max_attempts=2)
    first, second, third = session.dequeue(3)
    assert arrivals(session) == []
    session.call("pgqueue_message_complete", **token(first))
    session.call("pgqueue_message_defer", **token(second), dequeue_at=NOON)
    session.call("pgqueue_message_fail", **token(third))
    assert arrivals(session) == [("acme", 1, None), ("acme", 1, NOON), ("acme", 1, None)]


def test_rows_changed_by_hand_are_recorded_too(session: Session) -> None:
    set_channel(session, max_concurrency=5)
    session.create_batch(5, channel="acme")
    session.dequeue(5)
    session.rows("delete from pgqueue_message where content = '0'")
    session.rows("update pgqueue_message set channel = 'other' where content = '1'")
    session.rows("update pgqueue_message set queue = 'other' where content = '2'")
    session.rows("update pgqueue_message set unlock_at = null, worker = null, locked_at = null where content = '3'")
    session.rows("update pgqueue_message set channel = null where content = '4'")
    session.dequeue(1, queues=["nowhere"])
    assert channel(session).running == 1, "the one in another queue"
    assert channel(session, "other").running == 1
    assert drifted(session) == []


def test_a_row_that_is_inserted_locked_counts_as_running(session: Session) -> None:
    session.rows("""
        insert into pgqueue_message (dequeue_at, content, channel, unlock_at, locked_at, worker)
        values (0, '1', 'acme', 9999999999999, now(), 'w')
    """)
    session.dequeue()
    assert channel(session).running == 1
    assert drifted(session) == []


def test_heartbeat_progress_and_stop_requests_are_not_recorded(session: Session) -> None:
    session.create(channel="acme")
    held = session.take()
    assert session.value("pgqueue_message_heartbeat", **token(held)) is True
    session.call("pgqueue_message_request_cancel", ids=[held.id])
    assert arrivals(session) == []


def test_an_end_in_a_full_channel_wakes_a_sleeper(connect: Connect) -> None:
    session, sleeper = connect(), connect()
    set_channel(session, max_concurrency=1)
    session.create(channel="acme", task="shop.tasks.send")
    session.create(channel="acme", task="shop.tasks.send")
    held = session.take(tasks=True)
    see(session, "w9", asleep_ms=60_000)
    listener = Listener(sleeper, "pgqueue_w9")
    session.call("pgqueue_message_complete", **token(held))
    assert listener.heard(session) == [("pgqueue_w9", "default")]
