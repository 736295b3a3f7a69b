"""A paused queue goes on."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tests.sql.worker.test_pgqueue_worker_seen import see
from tests.support.sessions import Listener

if TYPE_CHECKING:
    from tests.support.fixtures.sessions import Connect
    from tests.support.sessions import Session


def test_waiting_messages_are_dequeued_in_order_and_only_a_paused_queue_is_resumed(session: Session) -> None:
    session.create_batch(3, queue="mail")
    assert session.value("pgqueue_queue_resume", queue="mail") is False
    session.call("pgqueue_queue_pause", queue="mail")
    assert [session.value("pgqueue_queue_resume", queue="mail") for _ in range(2)] == [True, False]
    assert [message.content for message in session.dequeue(10)] == [0, 1, 2]


def test_a_resumed_queue_can_be_paused_again(session: Session) -> None:
    session.create(queue="mail")
    session.call("pgqueue_queue_pause", queue="mail", by="anna")
    session.value("pgqueue_queue_resume", queue="mail")
    session.call("pgqueue_queue_pause", queue="mail", by="bert")
    assert session.dequeue() == []
    assert session.one("select paused_by from pgqueue_queue") == "bert"


def test_a_sleeping_worker_is_woken_for_a_resumed_queue(connect: Connect) -> None:
    operator, listener = connect(), Listener(connect(), "pgqueue_a")
    operator.call("pgqueue_queue_pause", queue="mail")
    see(operator, "a", asleep_ms=60_000)
    operator.value("pgqueue_queue_resume", queue="mail")
    assert listener.heard(operator) == [("pgqueue_a", "mail")]
