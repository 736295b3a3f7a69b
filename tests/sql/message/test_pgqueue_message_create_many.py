"""Many messages enter the queue with one statement."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import psycopg
import pytest

from tests.sql.worker.test_pgqueue_worker_seen import see
from tests.support.sessions import NOON, Listener

if TYPE_CHECKING:
    from tests.support.fixtures.sessions import Connect
    from tests.support.sessions import Session

DESCRIPTIONS: list[dict[str, Any]] = [
    {"content": {"n": 1}},
    {"content": None, "queue": "mail"},
    {"content": [], "task": "shop.tasks.send", "priority": 100},
    {"content": "text", "priority": -100, "dequeue_at": -1},
    {"content": 1.5, "dequeue_at": 2**63 - 1, "channel": "tenant"},
    {"content": {}, "headers": {"trace": 1}, "max_attempts": 1},
    {"content": {}, "max_attempts": None},
]


@pytest.mark.parametrize("description", DESCRIPTIONS)
def test_a_bulk_makes_the_same_rows_as_single_messages(session: Session, description: dict[str, Any]) -> None:
    [one_of_many] = session.ids("pgqueue_message_create_many", messages=[description])
    single = session.create(**description)

    assert _without_id(session.message(one_of_many)) == _without_id(session.message(single))


def _without_id(message: Any) -> dict[str, Any]:
    row: dict[str, Any] = message._asdict()
    del row["id"]
    return row


def test_ids_come_in_the_order_of_the_array(session: Session) -> None:
    ids = session.create_batch(3000)
    assert ids == sorted(ids)
    assert [message.content for message in session.messages()] == list(range(3000))
    assert [message.content for message in session.dequeue(3000)] == list(range(3000))


def test_an_empty_array_creates_no_messages(session: Session) -> None:
    assert session.ids("pgqueue_message_create_many", messages=[]) == []


def test_null_means_the_default(session: Session) -> None:
    nulls = {"queue": None, "task": None, "priority": None, "dequeue_at": None, "channel": None, "headers": None}
    session.set_clock(NOON)
    session.ids("pgqueue_message_create_many", messages=[{"content": 1, **nulls}])
    [message] = session.messages()
    assert (message.queue, message.priority, message.dequeue_at, message.headers) == ("default", 0, NOON, None)


@pytest.mark.parametrize(
    ("messages", "error"),
    [
        ({"content": 1}, psycopg.errors.InvalidParameterValue),
        ([{"content": 1}, {"queue": "mail"}], psycopg.errors.NotNullViolation),
        ([{"content": 1}, {"content": 2, "priority": 101}], psycopg.errors.CheckViolation),
        ([{"content": 1}, {"content": 2, "priority": "high"}], psycopg.errors.InvalidTextRepresentation),
        ([{"content": 1}, {"content": 2, "queue": ""}], psycopg.errors.CheckViolation),
        ([{"content": 1}, 2], psycopg.errors.InvalidParameterValue),
        ([{"content": 1}, {"content": 2, "prio": 5}], psycopg.errors.InvalidParameterValue),
    ],
)
def test_one_invalid_message_refuses_all(connect: Connect, messages: Any, error: type[psycopg.Error]) -> None:
    session = connect()
    with pytest.raises(error):
        session.ids("pgqueue_message_create_many", messages=messages)
    assert session.messages() == []


def test_unknown_keys_are_named(session: Session) -> None:
    with pytest.raises(psycopg.errors.InvalidParameterValue) as caught:
        session.ids("pgqueue_message_create_many", messages=[{"content": 1}, {"content": 2, "prio": 5, "delay": 1}])
    assert caught.value.diag.message_primary == (
        'message 2 of the array is not an object, or has unknown keys: {"prio": 5, "delay": 1}'
    )
    assert "The keys are content, queue, task, priority, dequeue_at, " in str(caught.value.diag.message_hint)


def test_one_sleeper_is_woken_for_each_queue_with_a_ready_message(connect: Connect) -> None:
    producer, listener = connect(), Listener(connect(), "pgqueue_w-mail", "pgqueue_w-maps", "pgqueue_w-later")
    for queue in ("mail", "maps", "later"):
        see(producer, f"w-{queue}", queues=[queue], asleep_ms=60_000)

    messages = [{"content": n, "queue": queue} for n in range(10) for queue in ("mail", "maps")]
    messages += [{"content": 0, "queue": "later", "dequeue_at": 2**62}]
    producer.ids("pgqueue_message_create_many", messages=messages)

    assert sorted(listener.heard(producer)) == [("pgqueue_w-mail", "mail"), ("pgqueue_w-maps", "maps")]
