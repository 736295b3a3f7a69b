"""The table of messages: what a row may say, and the status that is computed from it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import psycopg
import pytest

from tests.support.sessions import NOON, token

if TYPE_CHECKING:
    from tests.support.sessions import Session

MINUTE = 60_000
STATUS = """
    select case when unlock_at is null and dequeue_at > pgqueue_now() then 'scheduled'
                when unlock_at is null then 'ready'
                when unlock_at > pgqueue_now() then 'running'
                else 'expired' end
    from pgqueue_message
"""


def insert(session: Session, **columns: Any) -> int:
    """A row written by hand."""
    columns = {"dequeue_at": 0, "content": "{}", **columns}
    names, values = ", ".join(columns), ", ".join(f"%({name})s" for name in columns)
    message_id: int = session.one(f"insert into pgqueue_message ({names}) values ({values}) returning id", columns)
    return message_id


def test_the_status_can_not_lie_because_it_is_computed(session: Session) -> None:
    session.set_clock(NOON)
    session.create(dequeue_at=NOON + 1)
    assert session.one(STATUS) == "scheduled"
    session.set_clock(NOON + 1)
    assert session.one(STATUS) == "ready"
    held = session.take()
    assert session.one(STATUS) == "running"
    session.set_clock(NOON + 1 + MINUTE)
    assert session.one(STATUS) == "expired"
    session.value("pgqueue_message_defer", **token(held), dequeue_at=NOON * 2)
    assert session.one(STATUS) == "scheduled"


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
def test_a_lock_is_held_whole_or_not_at_all(session: Session, columns: dict[str, Any]) -> None:
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
def test_what_no_function_could_understand_is_refused(
    session: Session, columns: dict[str, Any], constraint: str
) -> None:
    with pytest.raises(psycopg.errors.CheckViolation, match=constraint):
        insert(session, **columns)


def test_two_messages_can_not_hold_one_key(session: Session) -> None:
    insert(session, unique_key="invoice 7")
    with pytest.raises(psycopg.errors.UniqueViolation, match="unique_key_ix"):
        insert(session, unique_key="invoice 7")


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
