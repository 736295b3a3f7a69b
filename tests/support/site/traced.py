from __future__ import annotations

from typing import Any

from django.db import connection
from opentelemetry import trace

from django_pgqueue.tasks import task
from django_pgqueue.traces.conventions import tracer


@task
def look() -> str:
    """In which span it runs."""
    return f"{trace.get_current_span().get_span_context().span_id:016x}"


@task
def order(number: int) -> None:
    """Does something that its own instrumentation sees, and leaves the rest to another job."""
    with tracer().start_as_current_span("charge"):
        look.using(priority=number).enqueue()


@task
async def order_on(number: int) -> None:
    with tracer().start_as_current_span("charge"):
        await look.using(priority=number).aenqueue()


@task(atomic=True)
def order_atomically(number: int) -> None:
    with connection.cursor() as cursor:
        cursor.execute("select 1")
    order.func(number)


@task(max_attempts=2, backoff=lambda *_: 0.0)
def refuse(word: str) -> None:
    message = f"no {word} today"
    raise ValueError(message)


@task(sensitive=["card"])
def pay(card: str) -> None:
    message = f"{card} was refused"
    raise ValueError(message)


@task(takes_context=True)
def come_back(context: Any) -> None:
    if context.attempt == 1:
        context.defer(0)


@task(timeout=0.2, durable=True)
def oversleep(context: Any) -> None:
    import time

    context.step("nap", time.sleep, 3)


@task(durable=True, max_attempts=2, backoff=lambda *_: 0.0)
def in_steps(context: Any) -> list[str]:
    """Four attempts: one fails, one waits for a child, one for an event."""
    context.step("first", look.func)
    if context.attempt == 1:
        context.step("second", refuse.func, "bread")
    child = context.call(look)
    context.wait_for_event("paid")
    return [child, context.step("third", look.func, atomic=True)]
