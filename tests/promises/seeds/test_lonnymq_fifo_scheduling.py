"""LonnyMQ's article on scheduling: a FIFO queue whose messages may have a time before which nobody gets them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from django.db import transaction

from django_pgqueue.queue import Queue
from tests.promises.seeds.faces import SqlQueue
from tests.support.cost import cost
from tests.support.sessions import NOON

if TYPE_CHECKING:
    from tests.promises.seeds.conftest import Clock, Face
    from tests.support.fixtures.sessions import Connect


def received(queue: Face, number: int) -> list[object]:
    """The contents of the next messages, one after the other; None where there is none."""
    messages = [queue.receive() for _ in range(number)]
    return [None if message is None else message.content for message in messages]


def test_a_message_is_not_dequeued_before_its_time(queue: Face, clock: Clock) -> None:
    clock(NOON)
    queue.send("later", dequeue_at=NOON + 1000)
    assert queue.receive() is None
    clock(NOON + 999)
    assert queue.receive() is None
    clock(NOON + 1000)
    assert received(queue, 2) == ["later", None]


def test_without_a_time_it_is_now(queue: Face, clock: Clock) -> None:
    clock(NOON)
    queue.send("now")
    assert received(queue, 1) == ["now"]


def test_the_earliest_time_goes_first_and_then_the_lowest_id(queue: Face, clock: Clock) -> None:
    clock(NOON)
    for content, dequeue_at in (("d", NOON), ("b", NOON - 5), ("e", NOON), ("c", NOON - 5), ("a", NOON - 9)):
        queue.send(content, dequeue_at=dequeue_at)
    assert received(queue, 6) == ["a", "b", "c", "d", "e", None]


def test_nothing_to_capture_is_null(queue: Face, another: SqlQueue) -> None:
    assert queue.receive() is None
    assert another.session.rows("select * from pgqueue_message_dequeue()") == []


def test_messages_of_one_transaction_keep_their_order(queue: Face, connect: Connect) -> None:
    """The time of a transaction stands still, so all of its messages have the same, and ids decide."""
    if isinstance(queue, Queue):
        with transaction.atomic():
            for n in range(10):
                queue.send(n)
    else:
        producer = connect(autocommit=False)
        for n in range(10):
            producer.create(n, queue="mail")
        producer.commit()
    assert received(queue, 10) == list(range(10))


def test_a_captured_message_that_is_done_is_gone(queue: Face, another: SqlQueue) -> None:
    queue.send("once")
    message = queue.receive()
    assert message is not None
    message.complete()
    assert another.session.messages() == []


def test_captures_at_the_same_time_are_not_the_same_message(queue: Face, connect: Connect) -> None:
    queue.send_many(["first", "second"])
    slow, quick = (SqlQueue(connect(autocommit=False), "mail") for _ in range(2))
    assert received(slow, 1) == ["first"]
    assert received(quick, 1) == ["second"], "neither the same one nor a wait for the other consumer"


def test_the_index_finds_the_lowest_time_without_reading_the_others(another: SqlQueue) -> None:
    session = another.session
    session.rows("vacuum pgqueue_message")  # other tests have left dead rows
    session.rows("""
        insert into pgqueue_message (dequeue_at, content, queue)
        select n, '{}', 'indexed' from generate_series(1, 20000) as n
    """)
    each = cost(session, "select * from pgqueue_message_dequeue('{indexed}')")
    assert each.entries["pgqueue_message_ready_ix"] <= 5
    assert each.buffers < 100
