"""Events: emitted once, and no wake-up is lost."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import psycopg
import pytest

from tests.sql.words import behind_policy
from tests.support.sessions import token

if TYPE_CHECKING:
    from tests.support.fixtures.sessions import Connect
    from tests.support.sessions import Session

pytestmark = pytest.mark.once


def suspended(session: Session, event: str, **parameters: Any) -> int:
    message_id = session.create(task="t", **parameters)
    held = session.take(tasks=True)
    session.value("pgqueue_message_suspend", **token(held), name=event, kind="event", event=event)
    return message_id


# pgqueue_event_emit: the first emit of a name counts
# pgqueue_event_put: under any name


def test_the_first_emit_counts(session: Session) -> None:
    said = [session.one(f"select pgqueue_event_emit('paid', '{payload}')") for payload in (1, 1, 2)]
    assert said == ["emitted", "repeated", "different"]
    assert session.one("select payload from pgqueue_event") == 1


def test_an_event_that_retention_deletes_meanwhile_is_emitted_anew(session: Session) -> None:
    session.one("select pgqueue_event_emit('paid', '1')")
    session.rows(
        "create function retention() returns trigger language plpgsql as "
        "$$ begin delete from pgqueue_event where payload = '1'; return null; end $$;"
        "create trigger retention after insert on pgqueue_event execute function retention()"
    )
    assert session.one("select pgqueue_event_emit('paid', '2')") == "emitted"
    assert session.one("select payload from pgqueue_event") == 2


def test_an_event_that_row_level_security_hides_is_refused(session: Session) -> None:
    """It looked for the event for ever."""
    session.one("select pgqueue_event_emit('paid', '1')")
    with (
        behind_policy(session, "pgqueue_event", "false"),
        pytest.raises(psycopg.errors.InsufficientPrivilege, match="row-level security hides the event 'paid'"),
    ):
        session.one("select pgqueue_event_emit('paid', '1')")


def test_emitting_never_waits_for_a_waiter(connect: Connect) -> None:
    session, busy = connect(), connect(autocommit=False)
    message_id = suspended(session, "paid")
    busy.rows("select from pgqueue_message where id = %s for update", (message_id,))
    session.rows("set lock_timeout = '1s'")
    assert session.value("pgqueue_event_emit", name="paid") == "emitted"


# pgqueue_event_arrive: who waits becomes ready


def test_a_dequeue_takes_what_an_event_has_made_ready(session: Session) -> None:
    message_id = suspended(session, "paid")
    assert session.dequeue(tasks=True) == []
    session.value("pgqueue_event_emit", name="paid")
    assert session.take(tasks=True).id == message_id
    assert session.rows("select from pgqueue_ended") == []


def test_an_event_before_its_waiter_is_found_by_the_waiters_own_row(session: Session) -> None:
    session.value("pgqueue_event_emit", name="paid")
    session.value("pgqueue_message_settle")
    message_id = suspended(session, "paid")
    assert session.take(tasks=True).id == message_id


def test_an_emit_that_commits_after_its_waiter_has_looked_is_not_missed(connect: Connect) -> None:
    session, emitter = connect(), connect(autocommit=False)
    emitter.value("pgqueue_event_emit", name="paid")  # sees no waiter
    message_id = suspended(session, "paid")
    assert session.dequeue(tasks=True) == []  # the second look sees no event
    emitter.commit()
    assert session.take(tasks=True).id == message_id


def test_a_waiter_that_another_session_has_locked_is_woken_later(connect: Connect) -> None:
    session, busy = connect(), connect(autocommit=False)
    message_id = suspended(session, "paid")
    session.value("pgqueue_message_settle")
    busy.rows("select from pgqueue_message where id = %s for update", (message_id,))
    session.value("pgqueue_event_emit", name="paid")
    assert session.value("pgqueue_message_settle") == 0
    busy.rollback()
    assert session.column("select event from pgqueue_ended") == ["paid"]
    session.rows("update pgqueue_ended set look_at = 0")
    assert session.take(tasks=True).id == message_id


def test_more_waiters_than_one_call_takes_are_woken_by_the_next(session: Session) -> None:
    for _ in range(5):
        suspended(session, "paid")
    session.value("pgqueue_message_settle")
    session.value("pgqueue_event_emit", name="paid")
    assert [session.value("pgqueue_message_settle", limit=2) for _ in range(4)] == [2, 2, 1, 0]


def test_a_settled_waiter_is_looked_at_by_nobody(session: Session) -> None:
    suspended(session, "paid")
    session.value("pgqueue_message_settle")
    assert session.rows("select from pgqueue_ended") == []
    assert session.value("pgqueue_message_attention_at") is None


def test_a_waiter_that_was_parked_or_runs_is_left_alone(session: Session) -> None:
    message_id = suspended(session, "paid")
    session.rows("update pgqueue_message set dequeue_at = 0, in_line = true")
    held = session.take(tasks=True)  # its time-out has come
    session.value("pgqueue_event_emit", name="paid")
    session.value("pgqueue_message_settle")
    session.value("pgqueue_message_defer", **token(held), dequeue_at=2**61, error="trouble")
    session.value("pgqueue_message_settle")
    assert session.message(message_id).dequeue_at == 2**61  # it is not suspended any more: it is retried
