"""Workers that rest are woken for what is due before they would look."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from tests.sql.words import see
from tests.support.sessions import NOON, Listener

if TYPE_CHECKING:
    from tests.support.fixtures.sessions import Connect
    from tests.support.sessions import Session

MINUTE = 60_000


def rest(session: Session, name: str, *, for_ms: int = 10 * MINUTE, **changes: Any) -> None:
    see(session, name, asleep_ms=2 * for_ms, **changes)
    session.rows("update pgqueue_worker set silent_until = pgqueue_now() + %s where id = %s", [for_ms, name])


@pytest.fixture
def producer(connect: Connect) -> Session:
    producer = connect()
    producer.set_clock(NOON)
    return producer


@pytest.fixture
def listener(connect: Connect) -> Listener:
    return Listener(connect(), "pgqueue_a", "pgqueue_b", "pgqueue_c")


def test_all_resting_workers_are_woken_because_one_may_have_died(producer: Session, listener: Listener) -> None:
    for name in "abc":
        rest(producer, name)
    producer.call("pgqueue_worker_wake_by", queue="mail", tasks=True, at=NOON + MINUTE)
    assert sorted(listener.heard(producer)) == [(f"pgqueue_{name}", "mail") for name in "abc"]
    producer.create(task="t", queue="mail")
    assert sorted(listener.heard(producer)) == [(f"pgqueue_{name}", "mail") for name in "abc"]


def test_a_worker_that_polls_every_second_is_not_woken(producer: Session, listener: Listener) -> None:
    see(producer, "a", asleep_ms=10_000)
    see(producer, "b")
    producer.create(task="t", dequeue_at=NOON + 5000)
    assert listener.heard(producer) == []


def test_a_worker_that_will_look_in_time_is_not_woken(producer: Session, listener: Listener) -> None:
    rest(producer, "a", for_ms=MINUTE)
    producer.create(task="t", dequeue_at=NOON + 2 * MINUTE)
    producer.create(task="t", dequeue_at=NOON + 100_000 * MINUTE)
    assert listener.heard(producer) == []
    producer.create(task="t", dequeue_at=NOON + 2 * MINUTE - 1)
    assert listener.heard(producer) == [("pgqueue_a", "default")]


def test_a_worker_that_died_long_ago_is_not_woken(producer: Session, listener: Listener) -> None:
    rest(producer, "a", for_ms=MINUTE)
    producer.set_clock(NOON + 2 * MINUTE)
    producer.create(task="t", dequeue_at=NOON + 2 * MINUTE + 1)
    assert listener.heard(producer) == []


def test_only_workers_that_would_take_the_message_are_woken(producer: Session, listener: Listener) -> None:
    rest(producer, "a", queues=["maps"])
    rest(producer, "b", exclude_queues=["mail"])
    rest(producer, "c", tasks=False)
    producer.create(task="t", queue="mail", dequeue_at=NOON + 5000)
    assert listener.heard(producer) == []


def test_a_worker_that_registers_again_no_longer_rests(producer: Session, listener: Listener) -> None:
    rest(producer, "a")
    see(producer, "a")
    producer.create(task="t", dequeue_at=NOON + 5000)
    assert listener.heard(producer) == []


@pytest.mark.parametrize(
    "call",
    [
        "pgqueue_message_create('1', p_task => 't', p_dequeue_at => {at})",
        "pgqueue_message_create_many('[1]', 'default', p_task => 't', p_dequeue_at => {at})",
        'pgqueue_message_create_many(\'[{{"content": 1, "task": "t", "dequeue_at": {at}}}]\')',
        "pgqueue_message_create_unique('k', '1', p_task => 't', p_dequeue_at => {at})",
        "pgqueue_message_create_after(array[1], '1', p_task => 't', p_dequeue_at => {at})",
        "pgqueue_message_create_after(array[1], '1', p_task => 't')",
        "pgqueue_message_publish('shop', 'a', '1', p_dequeue_at => {at})",
        "pgqueue_message_reschedule(array[7], {at})",
    ],
)
def test_each_enqueue_of_a_scheduled_message_wakes_a_resting_worker(
    producer: Session, listener: Listener, call: str
) -> None:
    producer.call("pgqueue_exchange_declare", name="shop")
    producer.call("pgqueue_binding_declare", exchange="shop", pattern="#", queue="default", task="t")
    producer.rows("insert into pgqueue_message (id, content, task, dequeue_at) values (7, '1', 't', 9e15)")
    rest(producer, "a")
    producer.rows("select * from " + call.format(at=NOON + 5000))
    assert listener.heard(producer) == [("pgqueue_a", "default")]


def test_a_debounced_key_wakes_a_resting_worker(producer: Session, listener: Listener) -> None:
    rest(producer, "a")
    for _ in range(2):
        producer.call(
            "pgqueue_message_create_unique",
            unique_key="k", content=1, task="t", dequeue_at=NOON + 5000, on_conflict="debounce",
        )  # fmt: skip
        assert listener.heard(producer) == [("pgqueue_a", "default")]
