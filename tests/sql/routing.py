"""Words for exchanges and bindings."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tests.support.sessions import Session


def bind(session: Session, pattern: str, queue: str = "mail", exchange: str = "orders", **parameters: Any) -> Any:
    """Binds a queue to an exchange, which is made, and answers ``p_id`` and ``p_changed``."""
    session.value("pgqueue_exchange_declare", name=exchange)
    [answer] = session.call("pgqueue_binding_declare", exchange=exchange, pattern=pattern, queue=queue, **parameters)
    return answer


def publish(session: Session, routing_key: str = "order.created", content: Any = "tea", **parameters: Any) -> list[Any]:
    given = {"exchange": "orders", "routing_key": routing_key, "content": content, **parameters}
    return session.call("pgqueue_message_publish", **given)


def route(session: Session, routing_key: str, exchange: str = "orders") -> list[Any]:
    return session.call("pgqueue_exchange_route", exchange=exchange, routing_key=routing_key)


def queues(session: Session, routing_key: str) -> list[str]:
    return [row.p_queue for row in route(session, routing_key)]
