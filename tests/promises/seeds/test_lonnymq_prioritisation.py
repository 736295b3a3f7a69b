"""LonnyMQ's newer article on priority: what it asks for, the cases it is afraid of, and the one thing it gives up."""

from __future__ import annotations

from typing import TYPE_CHECKING

import psycopg
import pytest

from django_pgqueue.exceptions import InvalidMessage
from django_pgqueue.queue import Queue
from tests.promises.seeds.test_lonnymq_fifo_scheduling import received
from tests.support.cost import cost
from tests.support.sessions import NOON

if TYPE_CHECKING:
    from tests.promises.seeds.conftest import Clock, Face
    from tests.promises.seeds.faces import SqlQueue


def test_priority_wins_first_and_within_one_the_oldest_ready_message(queue: Face, clock: Clock) -> None:
    clock(NOON)
    for content, priority, dequeue_at in (
        ("ordinary, old", 0, NOON - 100),
        ("urgent, newer", 5, NOON - 1),
        ("urgent, old", 5, NOON - 50),
        ("urgent, newer, sent later", 5, NOON - 1),
        ("ordinary, newer", 0, NOON),
    ):
        queue.send(content, priority=priority, dequeue_at=dequeue_at)
    assert received(queue, 6) == [
        "urgent, old",
        "urgent, newer",
        "urgent, newer, sent later",
        "ordinary, old",
        "ordinary, newer",
        None,
    ]


def test_a_scheduled_message_of_high_priority_is_first_when_it_is_due(queue: Face, clock: Clock) -> None:
    clock(NOON)
    queue.send("urgent, but later", priority=100, dequeue_at=NOON + 5000)
    assert received(queue, 1) == [None]
    clock(NOON + 5000)
    queue.send("ordinary, and even historical", dequeue_at=-1)
    assert received(queue, 2) == ["urgent, but later", "ordinary, and even historical"]


@pytest.mark.parametrize("priority", [-101, 101, 1_000_000])
def test_the_number_of_priorities_is_controlled_because_a_dequeue_may_look_at_each(
    another: SqlQueue, priority: int
) -> None:
    with pytest.raises(psycopg.errors.Error):
        another.send("x", priority=priority)
    with pytest.raises(InvalidMessage, match="-100 to 100"):
        Queue("mail").send("x", priority=priority)


BACKLOGS = {
    "a large number of high priority messages of the future": ("9e18::bigint + n", "100", 10),
    "a large backlog of ready messages": ("n", "0", 10),
    "ready messages of all priorities": ("n", "n % 201 - 100", 10),
    "messages of the future in many high priority buckets": ("9e18::bigint + n", "n % 200 - 99", 420),
}


@pytest.mark.parametrize("name", BACKLOGS)
def test_no_case_of_the_article_makes_a_dequeue_scan(another: SqlQueue, name: str) -> None:
    dequeue_at, priority, most_entries = BACKLOGS[name]
    another.session.rows("vacuum pgqueue_message")  # other tests have left dead rows
    another.session.create("the one", queue=name, priority=-100, dequeue_at=0)
    costs = []
    for first, last in ((1, 3000), (3001, 30_000)):
        another.session.rows(f"""
            insert into pgqueue_message (dequeue_at, content, queue, priority, in_line)
            select {dequeue_at}, '{{}}', '{name}', {priority}, {dequeue_at} < 9e18
            from generate_series({first}, {last}) as n
        """)
        costs.append(cost(another.session, f"select * from pgqueue_message_dequeue(array['{name}'])"))
    small, large = costs
    assert small.rows == large.rows == 1
    assert large.entries["pgqueue_message_ready_ix"] <= most_entries
    assert large.scans == small.scans, "ten times the messages, as many probes"
    assert large.buffers <= small.buffers + 1.5 * small.probes + 25


@pytest.mark.parametrize("dequeue_at", [-(2**63), -1, 0, 1, NOON - 1])
def test_dequeue_at_alone_makes_a_message_go_ahead_of_ordinary_ones(queue: Face, clock: Clock, dequeue_at: int) -> None:
    clock(NOON)
    queue.send("ordinary")
    queue.send("ahead", dequeue_at=dequeue_at)
    assert received(queue, 2) == ["ahead", "ordinary"]
