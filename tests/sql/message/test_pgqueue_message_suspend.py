"""A durable task that waits ends its attempt as suspended."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import psycopg
import pytest

from tests.support.sessions import NOON, token

if TYPE_CHECKING:
    from tests.support.sessions import Session

pytestmark = pytest.mark.once


NEVER = 2**63 - 1


def test_a_suspended_message_holds_nothing_and_uses_no_attempt_up(session: Session) -> None:
    session.set_clock(NOON)
    session.create(task="t", max_attempts=1)
    held = session.take(tasks=True)
    assert session.value("pgqueue_message_suspend", **token(held), name="nap", until=NOON + 1000) == "suspended"
    message = session.message(held.id)
    assert (message.worker, message.unlock_at, message.dequeue_at, message.max_attempts) == (None, None, NOON + 1000, 2)
    assert (message.suspended_attempt, message.attempt) == (1, 1)
    [attempt] = session.history(held.id)
    assert (attempt.status, attempt.final) == ("suspended", False)
    assert session.dequeue(tasks=True) == []
    session.set_clock(NOON + 1000)
    assert session.take(tasks=True).attempt == 2


def test_a_late_worker_suspends_nothing(session: Session) -> None:
    session.create(task="t")
    held = session.take(tasks=True)
    session.value("pgqueue_message_defer", **token(held))
    assert session.value("pgqueue_message_suspend", **token(held), until=NOON) is None


@pytest.mark.parametrize("wait", [{}, {"name": "nap"}, {"after_ids": []}, {"name": "nap", "after_ids": [None]}])
def test_a_wait_for_nothing_is_refused(session: Session, wait: dict[str, Any]) -> None:
    session.create(task="t")
    held = session.take(tasks=True)
    with pytest.raises(psycopg.errors.InvalidParameterValue, match="would wait for nothing") as error:
        session.value("pgqueue_message_suspend", **token(held), **wait)
    assert "p_until, p_event or p_after_ids" in str(error.value.diag.message_hint)


def test_an_approval_without_a_name_is_refused(session: Session) -> None:
    session.create(task="t")
    held = session.take(tasks=True)
    with pytest.raises(psycopg.errors.InvalidParameterValue, match="an approval without a name"):
        session.value("pgqueue_message_suspend", **token(held), kind="approval", event="e")


def test_a_message_that_was_asked_to_stop_is_cancelled_instead(session: Session) -> None:
    session.create(task="t")
    held = session.take(tasks=True)
    session.call("pgqueue_message_request_cancel", ids=[held.id])
    assert session.value("pgqueue_message_suspend", **token(held), event="e") == "cancelled"
    assert session.message(held.id) is None


def test_a_wait_without_an_end_is_out_of_reach(session: Session) -> None:
    session.create(task="t")
    held = session.take(tasks=True)
    session.value("pgqueue_message_suspend", **token(held), name="paid", kind="event", event="paid")
    assert session.message(held.id).dequeue_at == NEVER


def test_the_wait_is_recorded_once_with_its_first_end(session: Session) -> None:
    session.set_clock(NOON)
    session.create(task="t")
    for until in (NOON, NOON + 1):
        session.value("pgqueue_message_suspend", **token(session.take(tasks=True)), name="nap", until=until)
        session.set_clock(NOON + 1)
    assert session.column("select until from pgqueue_step") == [NOON]
