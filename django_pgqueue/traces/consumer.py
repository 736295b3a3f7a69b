"""Spans of consumers, which receive and process messages."""

from __future__ import annotations

import time
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from opentelemetry import trace
from opentelemetry.trace import SpanKind, StatusCode

from django_pgqueue.functions import Error
from django_pgqueue.traces.conventions import attributes, creation_context, links, name, tracer

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from opentelemetry.trace import Span

    from django_pgqueue.functions import Received
    from django_pgqueue.traces import Processed

FLUSH_MS = 2_000
"""Longest wait of an ending process for the collector of its spans: its supervisor would kill it later."""


def started(message: Received) -> Span:
    """Starts the span of an attempt, a child of the enqueue's span and linked to it: request and job are one trace."""
    created = creation_context(message.headers)
    return tracer().start_span(
        name("process", queue=message.queue, task=message.task),
        context=created,
        kind=SpanKind.CONSUMER,
        links=links([created]),
        attributes=attributes(
            "process",
            "process",
            queue=message.queue,
            task=message.task,
            **{
                "messaging.message.id": str(message.id),
                "messaging.client.id": message.worker,
                "pgqueue.attempt": message.attempt,
                "pgqueue.max_attempts": message.max_attempts,
                "pgqueue.priority": message.priority,
                "pgqueue.channel": message.channel,
            },
        ),
    )


def record_error(span: Span, error: Error, *, hidden: bool) -> None:
    """Records an error.  ``hidden``: only its class is recorded, because its text may quote sensitive values."""
    kind = error.error_class or "unknown"
    span.set_attribute("error.type", kind)
    span.set_status(StatusCode.ERROR, kind if hidden else f"{kind}: {error.message}")
    event = {"exception.type": kind}
    if not hidden:
        event |= {"exception.message": error.message, "exception.stacktrace": error.traceback or ""}
    span.add_event("exception", event)


@contextmanager
def step(message: Received, step_name: str, *, hidden: bool) -> Iterator[Span]:
    """Makes the span of a step of a durable task, in that of the attempt.  ``hidden``: as in ``record_error``."""
    span = tracer().start_span(
        f"step {step_name}",
        attributes={
            "pgqueue.step": step_name,
            "pgqueue.task": message.task or "",
            "pgqueue.attempt": message.attempt,
            "messaging.message.id": str(message.id),
        },
    )
    try:
        with trace.use_span(span, record_exception=False, set_status_on_exception=False):
            yield span
    except BaseException as error:
        if span.is_recording():
            record_error(span, Error.of(error), hidden=hidden)
        raise
    finally:
        if span.is_recording():  # the time of the attempt was not up before
            span.end()


@contextmanager
def processing(message: Processed) -> Iterator[Span]:
    span = started(message.received)
    try:
        with trace.use_span(span, record_exception=False, set_status_on_exception=False):
            yield span
    except BaseException as error:
        record_error(span, Error.of(error), hidden=message.is_sensitive())
        raise
    finally:
        span.end()


def received(messages: Sequence[Received], *, queue: str, began_ns: int) -> None:
    more: dict[str, Any] = {"messaging.batch.message_count": len(messages)}
    if len(messages) == 1:
        more = {"messaging.message.id": str(messages[0].id), "pgqueue.attempt": messages[0].attempt}
    tracer().start_span(
        name("receive", queue=queue, task=None),
        kind=SpanKind.CONSUMER,
        links=links(creation_context(message.headers) for message in messages),
        attributes=attributes("receive", "receive", queue=queue, task=None, **more),
        start_time=began_ns,
    ).end(time.time_ns())


def flush() -> None:
    force = getattr(trace.get_tracer_provider(), "force_flush", None)
    if force is not None:
        force(FLUSH_MS)
