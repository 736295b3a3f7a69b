"""What somebody has decided about a queue."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tests.support.sessions import Session


def test_a_row_without_a_time_pauses_nothing(session: Session) -> None:
    session.rows("insert into pgqueue_queue (name) values ('mail')")
    session.create(queue="mail")
    assert session.take().queue == "mail"
