"""The table of messages: what a row may say, and the status that is computed from it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import psycopg
import pytest

from tests.support.sessions import token

if TYPE_CHECKING:
    from tests.support.sessions import Session


def insert(session: Session, **columns: Any) -> int:
    """A row written by hand."""
    columns = {"dequeue_at": 0, "content": "{}", **columns}
    names, values = ", ".join(columns), ", ".join(f"%({name})s" for name in columns)
    message_id: int = session.one(f"insert into pgqueue_message ({names}) values ({values}) returning id", columns)
    return message_id


@pytest.mark.parametrize(
    "columns",
    [
        {"unlock_at": 5},
        {"worker": "w1"},
        {"locked_at": "2024-05-01"},
        {"unlock_at": 5, "worker": "w1"},
        {"unlock_at": 5, "locked_at": "2024-05-01"},
        {"worker": "w1", "locked_at": "2024-05-01"},
    ],
)
def test_lock_columns_are_all_set_or_all_null(session: Session, columns: dict[str, Any]) -> None:
    with pytest.raises(psycopg.errors.CheckViolation, match="lock_whole"):
        insert(session, **columns)


@pytest.mark.parametrize(
    ("columns", "constraint"),
    [
        ({"priority": -101}, "priority_range"),
        ({"priority": 101}, "priority_range"),
        ({"queue": ""}, "names_short"),
        ({"after_ids": [1]}, "after_whole"),
        ({"check_at": 5}, "awaited_of_after"),
        ({"awaited_id": 5}, "awaited_of_after"),
    ],
)
def test_invalid_rows_are_refused(session: Session, columns: dict[str, Any], constraint: str) -> None:
    with pytest.raises(psycopg.errors.CheckViolation, match=constraint):
        insert(session, **columns)


def test_rows_written_by_hand_are_worked_off_like_any_other(session: Session) -> None:
    minimal = insert(session)
    odd = insert(session, attempt=7, max_attempts=0, headers='"text"', dequeue_at=-(2**63), channel="")
    held_by_hand = insert(session, unlock_at=1, worker="", locked_at="2024-05-01", attempt=3)
    taken = session.dequeue(10)
    assert [message.id for message in taken] == [odd, minimal, held_by_hand]
    for message in taken:
        assert session.value("pgqueue_message_complete", **token(message)) is True
    assert len(session.history()) == 4, "three ends, and the attempt that was lost"


def test_a_message_without_attempts_fails_at_its_first_error(session: Session) -> None:
    insert(session, max_attempts=0)
    assert session.value("pgqueue_message_defer", **token(session.take()), error={"message": "no"}) == "failed"
