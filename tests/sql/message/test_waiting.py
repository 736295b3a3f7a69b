"""Waiting messages, and the time until which consumers that found nothing may sleep."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from tests.sql.message.test_parking import parked
from tests.support.sessions import NOON, token

if TYPE_CHECKING:
    from tests.support.sessions import Session


@pytest.fixture(autouse=True)
def noon(session: Session) -> None:
    session.set_clock(NOON)


# pgqueue_message_next_at: until when a consumer that found nothing may sleep


def test_it_is_the_earliest_time_whatever_the_priority(session: Session) -> None:
    session.create(priority=100, dequeue_at=NOON + 300)
    session.create(priority=0, dequeue_at=NOON + 200)
    session.create(priority=-100, dequeue_at=NOON + 100)
    session.create(priority=-100, dequeue_at=NOON + 400)
    assert session.value("pgqueue_message_next_at") == NOON + 100


@pytest.mark.parametrize(
    ("chosen", "next_at"),
    [
        ({}, 1),
        ({"queues": ["mail"]}, 2),
        ({"queues": ["mail", "maps"]}, 2),
        ({"queues": ["nowhere"]}, None),
        ({"queues": []}, None),
        ({"exclude_queues": ["spam"]}, 2),
        ({"queues": ["mail", "spam"], "exclude_queues": ["spam"]}, 2),
    ],
)
def test_a_consumer_can_limit_it_to_its_queues(session: Session, chosen: dict[str, Any], next_at: int | None) -> None:
    for queue, dequeue_at in (("spam", 1), ("mail", 2), ("maps", 3)):
        session.create(queue=queue, dequeue_at=dequeue_at)
    assert session.value("pgqueue_message_next_at", **chosen) == next_at


def test_raw_messages_and_tasks_have_separate_times(session: Session) -> None:
    session.create(dequeue_at=1)
    session.create(task="shop.tasks.send", dequeue_at=2)
    assert session.value("pgqueue_message_next_at") == 1
    assert session.value("pgqueue_message_next_at", tasks=True) == 2


def test_a_locked_message_is_not_counted(session: Session) -> None:
    session.create(dequeue_at=1)
    session.create(dequeue_at=2)
    held = session.take()
    assert session.value("pgqueue_message_next_at") == 2
    session.value("pgqueue_message_defer", **token(held), dequeue_at=-7)
    assert session.value("pgqueue_message_next_at") == -7


def test_it_is_the_time_when_a_dequeue_will_find_a_message(session: Session) -> None:
    for n in range(50):
        session.create(priority=n % 7, queue=f"q{n % 3}", dequeue_at=NOON + 1 + (n * 37) % 50)
    while (next_at := session.value("pgqueue_message_next_at")) is not None:
        session.set_clock(next_at - 1)
        assert session.dequeue() == []
        session.set_clock(next_at)
        assert session.take().dequeue_at == next_at


# pgqueue_message_attention_at: when a worker that rests has to look, though no waiting message is due


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


@pytest.mark.parametrize(("ahead_ms", "expected"), [(60_000, NOON + 60_000), (60_001, NOON)])
def test_it_is_now_for_an_end_that_came_while_the_clock_was_ahead(
    session: Session, ahead_ms: int, expected: int
) -> None:
    session.rows("insert into pgqueue_ended (message_id, look_at) values (1, %s)", [NOON + ahead_ms])
    assert attention_at(session) == expected


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


# pgqueue_message_levels: at which priorities messages stand in line


def levels(session: Session) -> list[tuple[bool, int]]:
    return sorted(tuple(row) for row in session.rows("select * from pgqueue_message_levels()"))


def test_tasks_and_raw_messages_have_levels_of_their_own(session: Session) -> None:
    for queue, task, priority in (
        ("b", None, 9), ("b", "x.y", 1), ("a", "x.y", 1), ("c", "x.y", 7), ("c", "x.y", 7), ("c", "x.y", -100),
    ):  # fmt: skip
        session.create(queue=queue, task=task, priority=priority)
    assert levels(session) == [(False, -100), (False, 1), (False, 7), (True, 9)]


def test_scheduled_messages_and_those_with_a_channel_are_not_in_line(session: Session) -> None:
    session.create(dequeue_at=NOON + 1)
    session.create(channel="c", priority=3)
    assert levels(session) == []
    session.set_clock(NOON + 1)
    session.dequeue(2)
    session.rows("update pgqueue_message set unlock_at = null, locked_at = null, worker = null")
    assert levels(session) == [(True, 0)]


# pgqueue_message_queues: which queues have messages that wait


def test_each_queue_is_named_once_in_the_order_of_the_names(session: Session) -> None:
    for queue in ("maps", "mail", "é", "Mail", "zebra", "mail", "a b"):
        session.create_batch(3, queue=queue)
    expected = session.column("select distinct queue from pgqueue_message order by queue")
    assert session.ids("pgqueue_message_queues") == expected


def test_scheduled_messages_and_tasks_wait_as_well(session: Session) -> None:
    session.create(queue="later", dequeue_at=2**62)
    session.create(queue="tasks", task="shop.tasks.send")
    assert session.ids("pgqueue_message_queues") == ["later", "tasks"]


def test_a_queue_whose_messages_all_run_is_left_out(session: Session) -> None:
    session.create(queue="mail")
    session.take()
    assert session.ids("pgqueue_message_queues") == []


def test_queues_whose_messages_have_channels_are_among_them(session: Session) -> None:
    session.create(queue="mail", channel="a")
    session.create(queue="maps", channel="b", dequeue_at=2**62)
    assert session.ids("pgqueue_message_queues") == ["mail", "maps"]


def test_the_limit_bounds_the_number_of_queues(session: Session) -> None:
    for n in range(9):
        session.create(queue=f"q{n}", priority=n)
    assert len(session.column("select pgqueue_message_queues(5)")) == 5


def test_a_queue_of_a_low_priority_is_not_hidden_by_many_of_higher_ones(session: Session) -> None:
    session.rows("""
        insert into pgqueue_message (content, queue, dequeue_at, priority)
        select '1', 'q' || k, 0, p from generate_series(1, 12) as k, generate_series(1, 100) as p
    """)
    session.create_batch(3)
    assert "default" in session.column("select pgqueue_message_queues(20)")


# pgqueue_message_reschedule: messages that wait get another time


def test_without_a_time_messages_are_ready_at_once(session: Session) -> None:
    message_id = session.create(dequeue_at=NOON + 60_000)
    assert session.ids("pgqueue_message_reschedule", ids=[message_id]) == [message_id]
    assert session.take().dequeue_at == NOON


def test_messages_can_be_postponed_and_brought_forward(session: Session) -> None:
    first, second = session.create_batch(2)
    session.ids("pgqueue_message_reschedule", ids=[first], dequeue_at=NOON + 60_000)
    session.ids("pgqueue_message_reschedule", ids=[second], dequeue_at=-1)
    assert [message.dequeue_at for message in session.messages()] == [NOON + 60_000, -1]
    assert [message.id for message in session.dequeue(2)] == [second]


def test_running_messages_keep_their_time_and_the_result_omits_ended_ones(session: Session) -> None:
    session.create_batch(3)
    ended, held = session.dequeue(2)
    session.value("pgqueue_message_complete", **token(ended))
    ids = [ended.id, held.id, held.id + 1, 2**62]
    assert session.ids("pgqueue_message_reschedule", ids=ids, dequeue_at=5) == [held.id + 1]
    assert session.message(held.id) == held


def test_a_message_with_an_expired_lock_keeps_its_time(session: Session) -> None:
    session.create()
    held = session.take()
    session.set_clock(NOON + 60_000)
    assert session.ids("pgqueue_message_reschedule", ids=[held.id], dequeue_at=2**62) == []
    assert session.take().id == held.id


def test_nothing_else_of_the_message_changes(session: Session) -> None:
    message_id = session.create(max_attempts=2)
    session.value("pgqueue_message_defer", **token(session.take()), error={"message": "late"})
    before = session.message(message_id)
    session.ids("pgqueue_message_reschedule", ids=[message_id], dequeue_at=5)
    assert session.message(message_id) == before._replace(dequeue_at=5)
