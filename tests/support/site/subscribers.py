"""Tasks that the tests of routing subscribe."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from django_pgqueue.tasks import task

if TYPE_CHECKING:
    from django_pgqueue.tasks.context import PgQueueContext


@task
def audit(content: Any, routing_key: str) -> Any:
    return [content, routing_key]


@task(queue_name="mail", priority=7, max_attempts=3)
def mail(content: Any, routing_key: str) -> str:
    return f"{routing_key} {content}"


@task(takes_context=True)
def with_context(context: PgQueueContext, content: Any, routing_key: str = "none") -> list[Any]:
    return [context.attempt, content, routing_key]


@task
async def in_a_loop(content: Any, routing_key: str) -> list[Any]:
    return [content, routing_key]


@task
def takes_one(content: Any) -> None:
    """Cannot be subscribed."""
