"""A budget is spent by the holder of a message, up to its limit."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from tests.support.sessions import token

if TYPE_CHECKING:
    from tests.support.sessions import Session

pytestmark = pytest.mark.once


def spend(session: Session, held: Any, amount: float, limit: float) -> tuple[Any, Any, Any]:
    [row] = session.rows(
        "select * from pgqueue_budget_spend(%s, %s, 'tokens', %s, %s, %s)",
        (held.id, held.attempt, amount, limit, held.worker),
    )
    return row.p_is_held, row.p_is_spent, row.p_spent


def test_no_more_than_the_limit_is_spent(session: Session) -> None:
    session.create(task="t")
    held = session.take(tasks=True)
    assert spend(session, held, 11, 10) == (True, False, 0)
    assert [spend(session, held, 4, 10) for _ in range(3)] == [(True, True, 4), (True, True, 8), (True, False, 8)]


def test_a_late_worker_spends_nothing(session: Session) -> None:
    session.create(task="t")
    held = session.take(tasks=True)
    session.value("pgqueue_message_defer", **token(held))
    assert spend(session, held, 1, 10) == (False, None, None)
