"""A queue is paused."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from tests.support.sessions import NOON, token

if TYPE_CHECKING:
    from tests.support.sessions import Session


@pytest.mark.parametrize("chosen", [{}, {"queues": ["mail"]}, {"queues": ["mail"], "exclude_queues": None}])
def test_nothing_is_dequeued_from_it(session: Session, chosen: dict[str, Any]) -> None:
    session.create(queue="mail")
    session.call("pgqueue_queue_pause", queue="mail")
    assert session.dequeue(10, **chosen) == []


def test_floors_are_no_way_in(session: Session) -> None:
    session.create(queue="mail")
    session.create("maps", queue="maps")
    session.call("pgqueue_queue_pause", queue="mail")
    floors = {
        "floor_queues": ["mail", "maps"],
        "floor_priorities": [0, 0],
        "floor_dequeue_ats": [0, 0],
        "floor_ids": [0, 0],
    }
    assert [message.content for message in session.dequeue(10, **floors)] == ["maps"]


def test_what_runs_goes_on_and_what_comes_waits(session: Session) -> None:
    session.create(queue="mail")
    held = session.take()
    session.call("pgqueue_queue_pause", queue="mail")
    assert session.value("pgqueue_message_complete", **token(held)) is True
    session.create(queue="mail")
    assert session.dequeue() == []
    assert len(session.messages()) == 1


def test_idle_consumers_may_sleep_although_messages_are_ready_in_it(session: Session) -> None:
    session.set_clock(NOON)
    session.create(queue="mail", dequeue_at=NOON - 5)
    session.create(queue="maps", dequeue_at=NOON + 5)
    session.call("pgqueue_queue_pause", queue="mail")
    assert session.value("pgqueue_message_next_at") == NOON + 5
    assert session.value("pgqueue_message_next_at", queues=["mail"]) is None


def test_who_paused_it_first_and_when_is_kept(session: Session) -> None:
    session.set_clock(NOON)
    session.call("pgqueue_queue_pause", queue="mail", by="anna")
    session.set_clock(NOON + 1000)
    session.call("pgqueue_queue_pause", queue="mail", by="bert")
    [row] = session.rows("select name, pgqueue_to_epoch(paused_at) as paused_ms, paused_by from pgqueue_queue")
    assert tuple(row) == ("mail", NOON, "anna")


def test_who_does_not_say_is_the_user_of_the_database(session: Session) -> None:
    session.call("pgqueue_queue_pause", queue="mail")
    assert session.one("select paused_by = current_user from pgqueue_queue")
