"""A binding that is gone takes no messages."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.sql.routing import bind, publish

if TYPE_CHECKING:
    from tests.support.sessions import Session


def test_a_deleted_binding_gets_no_message_and_earlier_ones_stay(session: Session) -> None:
    bind(session, "order.#")
    publish(session)
    assert session.value("pgqueue_binding_delete", exchange="orders", pattern="order.#", queue="mail") is True
    assert publish(session) == []
    assert len(session.messages()) == 1
    assert session.value("pgqueue_binding_delete", exchange="orders", pattern="order.#", queue="mail") is False


@pytest.mark.parametrize(
    "other", [{"exchange": "invoices"}, {"pattern": "#"}, {"queue": "maps"}, {"task": "a.b"}, {"kind": "regex"}]
)
def test_only_the_named_binding_is_deleted(session: Session, other: dict[str, str]) -> None:
    bind(session, "order.#")
    named = {"exchange": "orders", "pattern": "order.#", "queue": "mail", **other}
    assert session.value("pgqueue_binding_delete", **named) is False
    assert len(publish(session)) == 1
