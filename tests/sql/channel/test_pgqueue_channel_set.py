"""Limits of a channel."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import psycopg
import pytest

from tests.sql.lanes import channel, contents, set_channel
from tests.sql.worker.test_pgqueue_worker_seen import see
from tests.support.sessions import NOON, Listener, token

if TYPE_CHECKING:
    from tests.support.fixtures.sessions import Connect
    from tests.support.sessions import Session


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
    for n in range(4):
        session.create(n, channel="acme")
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
