"""LonnyMQ's article on scheduling: a FIFO queue whose messages may have a time before which nobody gets them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from django.db import transaction

from django_pgqueue.queue import Queue
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


def test_the_earliest_time_goes_first_and_then_the_lowest_id(queue: Face, clock: Clock) -> None:
    clock(NOON)
    for content, dequeue_at in (("d", NOON), ("b", NOON - 5), ("e", NOON), ("c", NOON - 5), ("a", NOON - 9)):
        queue.send(content, dequeue_at=dequeue_at)
    assert received(queue, 6) == ["a", "b", "c", "d", "e", None]


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
