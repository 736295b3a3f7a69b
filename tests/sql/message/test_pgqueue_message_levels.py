"""At which priorities messages stand in line."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tests.support.sessions import NOON

if TYPE_CHECKING:
    from tests.support.sessions import Session


def levels(session: Session) -> list[tuple[bool, int]]:
    return sorted(tuple(row) for row in session.rows("select * from pgqueue_message_levels()"))


def test_tasks_and_raw_messages_have_levels_of_their_own(session: Session) -> None:
    for queue, task, priority in (
        ("b", None, 9), ("b", "x.y", 1), ("a", "x.y", 1), ("c", "x.y", 7), ("c", "x.y", 7), ("c", "x.y", -100),
    ):  # fmt: skip
        session.create(queue=queue, task=task, priority=priority)
    assert levels(session) == [(False, -100), (False, 1), (False, 7), (True, 9)]


def test_scheduled_messages_and_those_with_a_channel_are_not_in_line(session: Session) -> None:
    session.set_clock(NOON)
    session.create(dequeue_at=NOON + 1)
    session.create(channel="c", priority=3)
    assert levels(session) == []
    session.set_clock(NOON + 1)
    session.dequeue(2)
    session.rows("update pgqueue_message set unlock_at = null, locked_at = null, worker = null")
    assert levels(session) == [(True, 0)]
