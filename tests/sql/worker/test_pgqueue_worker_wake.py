"""A message that is ready wakes a sleeping worker of its queue, and one that is due wakes workers that rest."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from psycopg.types.json import Jsonb

from tests.sql.words import see
from tests.support.sessions import NOON, Listener, token

if TYPE_CHECKING:
    from tests.support.fixtures.sessions import Connect
    from tests.support.sessions import Session

MINUTE = 60_000


# pgqueue_worker_wake: a message that is ready wakes one sleeping worker of its queue, when it is committed


def see_raw(session: Session, name: str, **changes: Any) -> None:
    """A worker that takes raw messages."""
    see(session, name, **{"tasks": False, **changes})


@pytest.fixture
def producer(connect: Connect) -> Session:
    producer = connect()
    producer.set_clock(NOON)
    return producer


@pytest.fixture
def listener(connect: Connect) -> Listener:
    """Listens to the notification channels of the workers a, b and c."""
    return Listener(connect(), "pgqueue_a", "pgqueue_b", "pgqueue_c")


ASLEEP: dict[str, Any] = {"asleep_ms": MINUTE}
NOBODY_WAKES: dict[str, dict[str, Any]] = {
    "who is awake is not notified": {"a": {}},
    "a sleeper of other queues": {"a": {**ASLEEP, "queues": ["maps"]}, "b": {**ASLEEP, "exclude_queues": ["mail"]}},
    "somebody is awake and has room": {"a": {"has_room": True}, "b": ASLEEP},
}
B_WAKES: dict[str, dict[str, Any]] = {
    "of all queues but one": {"b": {**ASLEEP, "exclude_queues": ["spam"]}},
    "of this queue": {"b": {**ASLEEP, "queues": ["mail"]}},
    "of this queue and others": {"b": {**ASLEEP, "queues": ["maps", "mail"]}},
    "who is awake has no room": {"a": {"has_room": False}, "b": ASLEEP},
    "who has room serves other queues": {"a": {"has_room": True, "queues": ["maps"]}, "b": ASLEEP},
    "who has room excludes the queue": {"a": {"has_room": True, "exclude_queues": ["mail"]}, "b": ASLEEP},
    "who has room runs tasks": {"a": {"has_room": True, "tasks": True}, "b": ASLEEP},
}


@pytest.mark.parametrize("case", [*NOBODY_WAKES, *B_WAKES])
def test_a_sleeper_that_may_take_the_message_is_woken_if_no_awake_worker_can(
    producer: Session, listener: Listener, case: str
) -> None:
    for name, changes in {**NOBODY_WAKES, **B_WAKES}[case].items():
        see_raw(producer, name, **changes)
    producer.create(queue="mail")
    assert listener.heard(producer) == ([("pgqueue_b", "mail")] if case in B_WAKES else [])


def test_a_sleeper_past_its_time_is_skipped(producer: Session, listener: Listener) -> None:
    see_raw(producer, "a", asleep_ms=MINUTE)
    see_raw(producer, "b", asleep_ms=2 * MINUTE)
    producer.set_clock(producer.one("select asleep_until from pgqueue_worker where id = 'a'"))
    producer.create()
    assert listener.heard(producer) == [("pgqueue_b", "default")]


@pytest.mark.parametrize(
    ("tasks", "woken"), [(True, ["pgqueue_a"]), (False, ["pgqueue_b"]), (None, ["pgqueue_a", "pgqueue_b"])]
)
def test_workers_for_tasks_and_for_raw_messages_are_distinguished(
    producer: Session, listener: Listener, tasks: bool | None, woken: list[str]
) -> None:
    see_raw(producer, "a", asleep_ms=MINUTE, tasks=True)
    see_raw(producer, "b", asleep_ms=MINUTE)
    producer.call("pgqueue_worker_wake", queue="mail", tasks=tasks)
    assert sorted(channel for channel, _ in listener.heard(producer)) == woken


@pytest.mark.parametrize(("task", "woken"), [(None, "pgqueue_b"), ("shop.tasks.send", "pgqueue_a")])
def test_a_message_wakes_only_a_worker_that_can_take_it(
    producer: Session, listener: Listener, task: str | None, woken: str
) -> None:
    see_raw(producer, "a", asleep_ms=MINUTE, tasks=True)
    see_raw(producer, "b", queues=["mail"], asleep_ms=MINUTE)
    producer.create(queue="mail", task=task)
    producer.ids("pgqueue_message_create_many", contents=Jsonb([1]), queue="mail", task=task)
    producer.call("pgqueue_message_create_unique", unique_key="k", content=1, queue="mail", task=task)
    assert listener.heard(producer) == [(woken, "mail")] * 3


def test_a_scheduled_message_wakes_no_worker(producer: Session, listener: Listener) -> None:
    see_raw(producer, "a", asleep_ms=MINUTE)
    producer.create(dequeue_at=producer.one("select pgqueue_now() + 60000"))
    assert listener.heard(producer) == []


def test_a_message_that_is_due_before_the_next_poll_wakes_a_worker_that_polls_then(
    producer: Session, listener: Listener
) -> None:
    see_raw(producer, "a", asleep_ms=MINUTE)
    producer.create(dequeue_at=producer.one("select pgqueue_now() + 1100"), queue="mail")
    assert listener.heard(producer) == [("pgqueue_a", "mail\n")]


def test_who_is_woken_by_another_consumer_is_told_so(producer: Session, listener: Listener) -> None:
    see_raw(producer, "a", asleep_ms=MINUTE)
    producer.call("pgqueue_worker_wake", queue="mail", tasks=False, next=True)
    assert listener.heard(producer) == [("pgqueue_a", "mail\n")]


def test_a_transaction_of_many_messages_notifies_once(connect: Connect, listener: Listener) -> None:
    other, producer = connect(), connect(autocommit=False)
    see_raw(other, "a", asleep_ms=MINUTE)
    for _ in range(20):
        producer.create()
    producer.commit()
    assert listener.heard(other) == [("pgqueue_a", "default")]


def test_reading_the_sleepers_neither_waits_nor_blocks(connect: Connect) -> None:
    waking, seen, producer = connect(autocommit=False), connect(autocommit=False), connect()
    see_raw(producer, "a", asleep_ms=MINUTE)
    for session in (waking, seen, producer):
        session.rows("set lock_timeout = '100ms'")
    waking.commit()
    waking.create()  # has read the sleeper and goes on
    see_raw(seen, "a")  # changes it and goes on
    producer.create()


def test_a_message_that_is_run_at_once_wakes_a_sleeper(producer: Session, listener: Listener) -> None:
    message_id = producer.create(dequeue_at=2**62)
    see_raw(producer, "a", asleep_ms=MINUTE)
    producer.ids("pgqueue_message_reschedule", ids=[message_id])
    assert listener.heard(producer) == [("pgqueue_a", "default")]


def test_a_message_that_is_enqueued_again_wakes_a_sleeper(producer: Session, listener: Listener) -> None:
    producer.create()
    held = producer.take()
    producer.value("pgqueue_message_fail", **token(held))
    see_raw(producer, "a", asleep_ms=MINUTE)
    producer.ids("pgqueue_attempt_enqueue", attempt_ids=[producer.history()[0].id])
    assert listener.heard(producer) == [("pgqueue_a", "default")]


def test_a_worker_with_room_that_is_not_seen_does_not_keep_sleepers_asleep(
    producer: Session, listener: Listener
) -> None:
    see_raw(producer, "a", has_room=True)
    see_raw(producer, "b", asleep_ms=MINUTE)
    producer.rows("update pgqueue_worker set seen_at = seen_at - interval '3 s' where id = 'a'")
    producer.create()
    assert listener.heard(producer) == [("pgqueue_b", "default")]


def test_an_enqueue_raises_no_error_with_any_worker_rows(session: Session) -> None:
    for name in ("id_short", "hostname_short", "queues_few", "times_of_calendar"):
        session.rows(f"alter table pgqueue_worker drop constraint pgqueue_worker_{name}")
    for number, name in enumerate(["", "a" * 56, "a" * 100_000, "b\n", "🍵" * 14]):
        session.rows(
            "insert into pgqueue_worker (id, asleep_until, seen_at, pid, slots, tasks, hostname, queues) "
            "values (%s, 9223372036854775807, %s, -1, -1, %s, repeat('x', 100000), array[null, 'mail'])",
            [name, "infinity" if number % 2 else "-infinity", number % 3 == 0],
        )
    for queue in ("mail", "x" * 100_000, "🍵" * 10_000, "", None):
        for tasks in (None, True, False):
            session.call("pgqueue_worker_wake", queue=queue, tasks=tasks)
    assert session.create(queue="mail")


def test_a_worker_name_too_long_for_a_notification_blocks_no_other_wake_up(
    producer: Session, listener: Listener
) -> None:
    producer.rows("alter table pgqueue_worker drop constraint pgqueue_worker_id_short")
    try:
        see_raw(producer, "a" * 57, asleep_ms=MINUTE)
        see_raw(producer, "b", asleep_ms=MINUTE)
        producer.create(queue="mail")
        assert listener.heard(producer) == [("pgqueue_b", "mail")]
    finally:
        producer.rows("delete from pgqueue_worker")
        producer.rows(
            "alter table pgqueue_worker add constraint pgqueue_worker_id_short "
            "check (octet_length(id) between 1 and 55 and id !~ '[\\u0001-\\u001f\\u007f]')"
        )


# pgqueue_worker_wake_by: workers that rest are woken for what is due before they would look


def rest(session: Session, name: str, *, for_ms: int = 10 * MINUTE, **changes: Any) -> None:
    see(session, name, asleep_ms=2 * for_ms, **changes)
    session.rows("update pgqueue_worker set silent_until = pgqueue_now() + %s where id = %s", [for_ms, name])


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
    assert ("pgqueue_a", "default") in listener.heard(producer)


def test_a_debounced_key_wakes_a_resting_worker(producer: Session, listener: Listener) -> None:
    rest(producer, "a")
    for _ in range(2):
        producer.call(
            "pgqueue_message_create_unique",
            unique_key="k", content=1, task="t", dequeue_at=NOON + 5000, on_conflict="debounce",
        )  # fmt: skip
        assert listener.heard(producer) == [("pgqueue_a", "default")]
