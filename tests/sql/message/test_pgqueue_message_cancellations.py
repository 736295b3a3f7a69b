"""Consumers look whether they were asked to stop."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tests.support.sessions import Session


def test_each_consumer_gets_the_requests_for_its_messages(session: Session) -> None:
    ids = session.create_batch(4)
    session.dequeue(3, worker="w1")
    session.dequeue(1, worker="w2")
    assert session.ids("pgqueue_message_cancellations", ids=ids, worker="w1") == []
    session.ids("pgqueue_message_request_cancel", ids=[ids[1], ids[3]])
    assert session.ids("pgqueue_message_cancellations", ids=ids, worker="w1") == [ids[1]]
    assert session.ids("pgqueue_message_cancellations", ids=ids, worker="w2") == [ids[3]]
    assert session.ids("pgqueue_message_cancellations", ids=ids[2:], worker="w1") == []
