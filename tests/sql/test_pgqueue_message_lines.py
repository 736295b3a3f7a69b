"""In which queues and priorities messages stand in line."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tests.sql.sessions import NOON

if TYPE_CHECKING:
    from tests.sql.sessions import Session


def lines(session: Session, limit: int = 100) -> list[tuple[str, bool, int]]:
    return [tuple(row) for row in session.rows(f"select * from pgqueue_message_lines({limit})")]


def test_tasks_and_raw_messages_come_in_turn_the_highest_priorities_first(session: Session) -> None:
    for queue, task, priority in (
        ("b", None, 9), ("b", "x.y", 1), ("a", "x.y", 1), ("c", "x.y", 7), ("c", "x.y", 7), ("c", "x.y", -100),
    ):  # fmt: skip
        session.create(queue=queue, task=task, priority=priority)
    expected = [("c", False, 7), ("b", True, 9), ("a", False, 1), ("b", False, 1), ("c", False, -100)]
    assert lines(session) == expected
    assert lines(session, 2) == expected[:2]


def test_what_is_scheduled_or_has_a_channel_is_not_in_line(session: Session) -> None:
    session.set_clock(NOON)
    session.create(dequeue_at=NOON + 1)
    session.create(channel="c")
    assert lines(session) == []
    session.set_clock(NOON + 1)
    session.dequeue(0)
    assert lines(session) == []
    session.dequeue(1)
    session.rows("update pgqueue_message set unlock_at = null, locked_at = null, worker = null")
    assert lines(session) == [("default", True, 0)]
