"""An exchange goes with its bindings; what it has enqueued stays."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tests.sql.routing import bind, publish

if TYPE_CHECKING:
    from tests.support.sessions import Session


def test_only_the_exchange_and_its_bindings_are_deleted(session: Session) -> None:
    bind(session, "#")
    bind(session, "#", exchange="other")
    publish(session)
    assert session.value("pgqueue_exchange_delete", name="orders") is True
    assert session.column("select exchange from pgqueue_binding") == ["other"]
    assert session.value("pgqueue_exchange_delete", name="orders") is False
    assert session.take(queues=["mail"]).content == "tea"
