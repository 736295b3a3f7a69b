"""A consumer says how far it is.  Who does not hold the message cannot: see test_fencing.py."""

from __future__ import annotations

from typing import TYPE_CHECKING

from psycopg.types.json import Jsonb

from tests.support.sessions import NOON, token

if TYPE_CHECKING:
    from tests.support.sessions import Session

HALF = Jsonb({"fraction": 0.5, "text": "halfway"})


def test_the_message_has_the_last_progress(session: Session) -> None:
    session.create()
    held = session.take()
    assert session.value("pgqueue_message_progress", **token(held), progress=HALF) is True
    assert session.message(held.id)._replace(progress=None) == held
    assert session.message(held.id).progress == {"fraction": 0.5, "text": "halfway"}


def test_the_next_attempt_begins_without_progress(session: Session) -> None:
    session.set_clock(NOON)
    session.create()
    held = session.take()
    session.value("pgqueue_message_progress", **token(held), progress=HALF)
    session.value("pgqueue_message_defer", **token(held))
    again = session.take()
    assert again.progress is None
    session.value("pgqueue_message_progress", **token(again), progress=HALF)
    session.set_clock(NOON + 60_000)
    assert session.take().progress is None
