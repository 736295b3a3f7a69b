"""Which tasks have parked messages: for workers, which ask each second, and for people."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tests.sql.message.test_pgqueue_message_park import claim, park, parked
from tests.support.sessions import NOON

if TYPE_CHECKING:
    from tests.support.sessions import Session


def lines(session: Session, **parameters: Any) -> list[tuple[Any, ...]]:
    return [tuple(row) for row in session.call("pgqueue_message_parked", **parameters)]


def test_each_task_of_each_queue_is_returned_once(session: Session) -> None:
    session.set_clock(NOON)
    for task, queue in (("b", "default"), ("a", "default"), ("a", "mail"), ("a", "default")):
        parked(session, task=task, queue=queue)
    session.create(task="c")
    assert lines(session) == [
        ("default", "a", 2, NOON, "no such task", None),
        ("default", "b", 1, NOON, "no such task", None),
        ("mail", "a", 1, NOON, "no such task", None),
    ]


def test_it_continues_after_a_given_position(session: Session) -> None:
    for task in "abcd":
        parked(session, task=task)
    assert [line[1] for line in lines(session, limit=2)] == ["a", "b"]
    assert [line[1] for line in lines(session, limit=2, after_queue="default", after_task="b")] == ["c", "d"]


def test_it_counts_up_to_a_number(session: Session) -> None:
    for _ in range(3):
        parked(session)
    assert [line[2] for line in lines(session, count=2)] == [2]


def test_it_returns_the_earliest_unknown_since(session: Session) -> None:
    session.set_clock(NOON)
    parked(session)
    session.set_clock(NOON + 1)
    parked(session)
    session.set_clock(NOON + 2)
    session.call("pgqueue_message_unpark", queues=["default"], tasks=["t"], limit=1)
    park(session, claim(session))  # the older one is now the one that was parked last
    assert [line[3] for line in lines(session)] == [NOON]


def test_it_is_empty_if_nothing_is_parked(session: Session) -> None:
    session.create(task="t")
    assert lines(session) == []
