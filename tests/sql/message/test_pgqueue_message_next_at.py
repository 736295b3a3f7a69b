"""Until when a consumer that found nothing may sleep."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from tests.support.sessions import NOON, token

if TYPE_CHECKING:
    from tests.support.sessions import Session


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
    session.set_clock(NOON)
    for n in range(50):
        session.create(priority=n % 7, queue=f"q{n % 3}", dequeue_at=NOON + 1 + (n * 37) % 50)
    while (next_at := session.value("pgqueue_message_next_at")) is not None:
        session.set_clock(next_at - 1)
        assert session.dequeue() == []
        session.set_clock(next_at)
        assert session.take().dequeue_at == next_at
