"""Locks are lengthened while the work goes on."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.support.sessions import NOON, token

if TYPE_CHECKING:
    from tests.support.sessions import Session

MINUTE = 60_000


@pytest.mark.parametrize(("said", "lasts_ms"), [({"lock_ms": 7000}, 7000), ({"lock_ms": 1}, 1), ({}, MINUTE)])
def test_a_heartbeat_extends_the_lock_from_now_and_changes_nothing_else(
    session: Session, said: dict[str, int], lasts_ms: int
) -> None:
    session.set_clock(NOON)
    message_id = session.create()
    held = session.take(lock_ms=10_000)
    session.set_clock(NOON + 4000)
    assert session.value("pgqueue_message_heartbeat", **token(held), **said) is True
    assert session.message(message_id) == held._replace(unlock_at=NOON + 4000 + lasts_ms)


def test_a_consumer_that_sends_heartbeats_is_never_taken_over(session: Session) -> None:
    session.set_clock(NOON)
    session.create()
    held = session.take(worker="slow")
    for beat in range(1, 10):
        session.set_clock(NOON + beat * MINUTE - 1)
        assert session.value("pgqueue_message_heartbeat", **token(held)) is True
        session.set_clock(NOON + beat * MINUTE)
        assert session.dequeue(worker="eager") == []
    assert session.value("pgqueue_message_complete", **token(held)) is True
