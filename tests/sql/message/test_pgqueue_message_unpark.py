"""A worker that knows the tasks of parked messages takes them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tests.sql.message.test_pgqueue_message_park import claim, park, parked
from tests.support.sessions import NOON

if TYPE_CHECKING:
    from tests.support.fixtures.sessions import Connect
    from tests.support.sessions import Session


def unpark(session: Session, *tasks: str, queue: str = "default", limit: int = 100) -> int:
    count: int = session.value("pgqueue_message_unpark", queues=[queue] * len(tasks), tasks=list(tasks), limit=limit)
    return count


def test_an_unparked_message_keeps_its_position(session: Session) -> None:
    session.set_clock(NOON)
    first = parked(session)
    session.set_clock(NOON + 10)
    second = session.create(task="t")
    assert unpark(session, "t") == 1
    assert session.message(first).dequeue_at == NOON
    assert [message.id for message in claim(session, 2)] == [first, second]


def test_other_tasks_and_other_queues_stay_parked(session: Session) -> None:
    parked(session, task="a")
    parked(session, task="b")
    parked(session, task="a", queue="mail")
    assert unpark(session, "a") == 1
    assert [(message.task, message.queue) for message in claim(session, 5)] == [("a", "default")]


def test_the_longest_parked_messages_come_first(session: Session) -> None:
    session.set_clock(NOON)
    first, second = parked(session), parked(session)
    session.set_clock(NOON + 1)
    unpark(session, "t", limit=1)
    [taken] = claim(session)
    assert taken.id == first
    park(session, [taken])
    unpark(session, "t", limit=1)
    assert [message.id for message in claim(session)] == [second], "the first one has had its turn"


def test_a_flood_of_one_task_leaves_another_its_share(session: Session) -> None:
    for _ in range(10):
        parked(session, task="flood")
    parked(session, task="other")
    assert unpark(session, "flood", "other", limit=4) == 3
    assert sorted(message.task for message in claim(session, 5)) == ["flood", "flood", "other"]


def test_rows_locked_by_another_session_are_left_for_the_next_call(connect: Connect) -> None:
    session, other = connect(), connect(autocommit=False)
    message_id = parked(session)
    other.rows("select from pgqueue_message where id = %s for update", [message_id])
    assert unpark(session, "t") == 0
    other.rollback()
    assert unpark(session, "t") == 1


def test_unparked_in_a_claim_a_message_is_taken_by_no_other_worker(connect: Connect) -> None:
    session, other = connect(autocommit=False), connect()
    message_id = parked(session)
    session.commit()
    unpark(session, "t")
    assert [message.id for message in claim(session)] == [message_id]
    assert claim(other, worker="w2") == []
    session.commit()
    assert claim(other, worker="w2") == []


def test_messages_that_are_not_parked_stay_unchanged(session: Session) -> None:
    session.create(task="t", dequeue_at=NOON * 2)
    before = session.messages()
    assert unpark(session, "t") == 0
    assert session.messages() == before


def test_given_ids_are_unparked_beside_the_share_of_their_tasks(session: Session) -> None:
    first, second, third = (parked(session) for _ in range(3))
    waiting = session.create(task="t", dequeue_at=NOON * 10)
    chosen = {"queues": [], "tasks": [], "limit": 0, "ids": [third, waiting, 10**9]}
    assert session.value("pgqueue_message_unpark", **chosen) == 1
    assert session.message(waiting).dequeue_at == NOON * 10
    assert [message.id for message in claim(session, 5)] == [third]
    assert session.value("pgqueue_message_unpark", queues=["default"], tasks=["t"], limit=1, ids=[second]) == 2
    assert sorted(message.id for message in claim(session, 5)) == [first, second]
