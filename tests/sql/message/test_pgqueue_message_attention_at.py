"""When a worker that rests has to look, though no waiting message is due."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.sql.message.test_pgqueue_message_park import parked
from tests.support.sessions import NOON

if TYPE_CHECKING:
    from tests.support.sessions import Session


@pytest.fixture(autouse=True)
def noon(session: Session) -> None:
    session.set_clock(NOON)


def attention_at(session: Session) -> int | None:
    at: int | None = session.value("pgqueue_message_attention_at")
    return at


def test_it_is_null_for_an_empty_queue(session: Session) -> None:
    assert attention_at(session) is None


def test_ordinary_waiting_messages_are_ignored(session: Session) -> None:
    session.create(dequeue_at=NOON + 5)
    session.create()
    assert attention_at(session) is None


def test_it_is_the_end_of_the_first_lock(session: Session) -> None:
    for lock_ms in (3000, 2000):
        session.create()
        session.take(lock_ms=lock_ms)
    assert attention_at(session) == NOON + 2000


def test_it_is_the_first_check_of_a_message_with_dependencies(session: Session) -> None:
    first = session.create(dequeue_at=NOON + 900_000)
    session.value("pgqueue_message_create_after", after_ids=[first], content=1, dequeue_at=NOON + 700)
    assert attention_at(session) == NOON + 700


def test_it_is_now_if_a_dependency_must_be_checked(session: Session) -> None:
    session.value("pgqueue_message_create_after", after_ids=[10**6], content=1)
    assert attention_at(session) == NOON


def test_it_is_the_time_of_the_first_quarantined_message(session: Session) -> None:
    for n in (600, 500):
        session.rows(
            "update pgqueue_message set alone_at = %s, dequeue_at = 9223372036854775807, in_line = false where id = %s",
            [NOON + n, session.create(task="t", queue=f"of {n}")],
        )
    assert attention_at(session) == NOON + 500
    session.call("pgqueue_queue_pause", queue="of 500")
    assert attention_at(session) == NOON + 600
    session.rows("update pgqueue_message set task = null")
    assert attention_at(session) is None, "no worker takes a raw message, whatever its row says"


def test_behind_a_hundred_paused_messages_it_is_within_a_minute(session: Session) -> None:
    session.rows(
        "insert into pgqueue_message (content, task, queue, dequeue_at, in_line, alone_at) "
        "select '{}', 't', 'paused', 9223372036854775807, false, %s from generate_series(1, 100)",
        [NOON],
    )
    session.call("pgqueue_queue_pause", queue="paused")
    assert attention_at(session) == NOON + 60_000
    session.rows("delete from pgqueue_message where id = (select min(id) from pgqueue_message)")
    assert attention_at(session) is None


def test_it_is_now_while_a_message_is_parked(session: Session) -> None:
    """A worker that knows it may have missed the notification, and one that does not has to fail it in time."""
    parked(session)
    assert attention_at(session) == NOON
    session.call("pgqueue_message_unpark", queues=["default"], tasks=["t"])
    assert attention_at(session) is None


def test_it_is_now_while_a_lane_has_an_arrival(session: Session) -> None:
    session.create(channel="acme", dequeue_at=NOON + 500)
    assert attention_at(session) == NOON
    session.dequeue()
    assert attention_at(session) is None, "the lane knows the time, and pgqueue_message_next_at says it"
