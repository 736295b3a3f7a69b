"""A paused queue goes on."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tests.sql.worker.test_pgqueue_worker_seen import see
from tests.support.sessions import Listener

if TYPE_CHECKING:
    from tests.support.fixtures.sessions import Connect
    from tests.support.sessions import Session


def test_what_waited_is_dequeued_in_its_order_and_what_was_not_paused_is_not_resumed(session: Session) -> None:
    session.create_batch(3, queue="mail")
    assert session.value("pgqueue_queue_resume", queue="mail") is False
    session.call("pgqueue_queue_pause", queue="mail")
    assert [session.value("pgqueue_queue_resume", queue="mail") for _ in range(2)] == [True, False]
    assert [message.content for message in session.dequeue(10)] == [0, 1, 2]


def test_it_can_be_paused_again(session: Session) -> None:
    session.create(queue="mail")
    session.call("pgqueue_queue_pause", queue="mail", by="anna")
    session.value("pgqueue_queue_resume", queue="mail")
    session.call("pgqueue_queue_pause", queue="mail", by="bert")
    assert session.dequeue() == []
    assert session.one("select paused_by from pgqueue_queue") == "bert"


def test_a_sleeping_worker_is_woken_for_it(connect: Connect) -> None:
    operator, listener = connect(), Listener(connect(), "pgqueue_a")
    operator.call("pgqueue_queue_pause", queue="mail")
    see(operator, "a", asleep_ms=60_000)
    operator.value("pgqueue_queue_resume", queue="mail")
    assert listener.heard(operator) == [("pgqueue_a", "mail")]
