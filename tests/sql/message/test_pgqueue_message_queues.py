"""Which queues have messages that wait."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tests.support.sessions import Session


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
