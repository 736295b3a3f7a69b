"""Names and attributes of spans, after OpenTelemetry's conventions for messaging.

The names of the attributes are written out: those for messaging are not stable yet, and the package with their
constants changes in each release.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from opentelemetry import trace
from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

if TYPE_CHECKING:
    from collections.abc import Iterable

    from opentelemetry.context import Context
    from opentelemetry.trace import Tracer

SYSTEM = "pgqueue"
# The W3C's headers, whatever propagator the project has set: their format is fixed, and they have no personal data.
PROPAGATOR = TraceContextTextMapPropagator()
HEADERS = ("traceparent", "tracestate")


def tracer() -> Tracer:
    """Returns the tracer.  It is not kept, because the project may set its provider after this module was imported."""
    return trace.get_tracer("django_pgqueue")


def name(operation: str, *, queue: str | None, task: str | None) -> str:
    """Returns the name of a span.  The conventions use the queue, but people look for one of its many tasks."""
    return " ".join(word for word in (operation, task or queue) if word)


def attributes(operation: str, kind: str, *, queue: str | None, task: str | None, **others: Any) -> dict[str, Any]:
    found = {
        "messaging.system": SYSTEM,
        "messaging.operation.name": operation,
        "messaging.operation.type": kind,
        "messaging.destination.name": queue,
        "pgqueue.task": task,
        **others,
    }
    return {key: value for key, value in found.items() if value is not None}


def creation_context(headers: str | dict[str, Any] | None) -> Context | None:
    """Returns the trace context in the headers of a message, that of its enqueue.  None: they have none."""
    carried = _read(headers)
    if not carried:
        return None
    carrier = {key: value for key in HEADERS if isinstance(value := carried.get(key), str)}
    found = PROPAGATOR.extract(carrier) if carrier else None
    return found if found and _span_context(found).is_valid else None


def links(contexts: Iterable[Context | None]) -> list[trace.Link]:
    return [trace.Link(_span_context(context)) for context in contexts if context is not None]


def _span_context(context: Context) -> trace.SpanContext:
    return trace.get_current_span(context).get_span_context()


def _read(headers: str | dict[str, Any] | None) -> dict[str, Any] | None:
    if isinstance(headers, str):
        try:
            headers = json.loads(headers)
        except (ValueError, RecursionError):  # the sender's headers are wrong, which must not fail a trace
            return None
    return headers if isinstance(headers, dict) else None
