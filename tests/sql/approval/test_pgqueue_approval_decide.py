"""A decision is made once."""

from __future__ import annotations

from typing import TYPE_CHECKING

import psycopg
import pytest

from tests.support.sessions import token

if TYPE_CHECKING:
    from tests.support.fixtures.sessions import Connect
    from tests.support.sessions import Session

pytestmark = pytest.mark.once


def asked(session: Session) -> int:
    session.create(task="t")
    held = session.take(tasks=True)
    session.value(
        "pgqueue_message_suspend", **token(held), name="ok", kind="approval", event=f"pgqueue:approval:{held.id}:ok"
    )
    message_id: int = held.id
    return message_id


def decide(session: Session, message_id: int, *, by: str = "ada", approved: bool = True, name: str = "ok") -> str:
    status: str = session.value("pgqueue_approval_decide", message_id=message_id, name=name, approved=approved, by=by)
    return status


def test_a_decision_wakes_its_message_and_keeps_who_made_it(session: Session) -> None:
    message_id = asked(session)
    assert decide(session, message_id) == "decided"
    [row] = session.rows("select approved, decided_by, decided_at is not null as has_time from pgqueue_approval")
    assert (row.approved, row.decided_by, row.has_time) == (True, "ada", True)
    assert session.take(tasks=True).id == message_id
    assert session.one("select payload ->> 'by' from pgqueue_event") == "ada"


def test_of_two_at_once_one_decides(connect: Connect) -> None:
    first, second = connect(autocommit=False), connect()
    message_id = asked(second)
    assert decide(first, message_id) == "decided"
    second.rows("set lock_timeout = '100ms'")
    with pytest.raises(psycopg.errors.LockNotAvailable):
        decide(second, message_id, by="bob", approved=False)
    first.commit()
    assert decide(second, message_id, by="bob", approved=False) == "already"
    assert second.one("select decided_by from pgqueue_approval") == "ada"


def test_nothing_is_decided_for_a_message_that_has_ended_or_not_asked(session: Session) -> None:
    message_id = asked(session)
    assert decide(session, message_id, name="another") == "unknown"
    session.rows("select pgqueue_message_cancel(%s::bigint)", (message_id,))
    assert decide(session, message_id) == "ended"
