"""The span of an enqueue."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Self

from opentelemetry import trace
from opentelemetry.trace import SpanKind, StatusCode

from django_pgqueue.traces import Sending
from django_pgqueue.traces.conventions import PROPAGATOR, attributes, name, tracer

if TYPE_CHECKING:
    from collections.abc import Mapping
    from contextlib import AbstractContextManager
    from types import TracebackType


class TracedSending(Sending):
    """Span of an enqueue, one also for many messages: the attempts at them continue its trace."""

    def __init__(self, *, queue: str | None, task: str | None) -> None:
        self.span = tracer().start_span(
            name("enqueue", queue=queue, task=task),
            kind=SpanKind.PRODUCER,
            attributes=attributes("enqueue", "send", queue=queue, task=task),
        )
        self._current: AbstractContextManager[Any] = trace.use_span(
            self.span, record_exception=False, set_status_on_exception=False
        )

    def __enter__(self) -> Self:
        self._current.__enter__()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        if kind is not None:  # only the class, because the text may quote the content of the message
            self.span.set_attribute("error.type", kind.__qualname__)
            self.span.set_status(StatusCode.ERROR, kind.__qualname__)
        self._current.__exit__(kind, error, traceback)
        self.span.end()

    def added_to(self, headers: Mapping[str, Any] | None) -> Mapping[str, Any] | None:
        """Adds the trace of this span, unless the caller's headers already have one."""
        if headers is not None and "traceparent" in headers:
            return headers
        carrier: dict[str, str] = {}
        PROPAGATOR.inject(carrier)
        return {**(headers or {}), **carrier} if carrier else headers

    def sent(self, *ids: int, count: int | None = None) -> None:
        if count is None and len(ids) == 1:
            self.span.set_attribute("messaging.message.id", str(ids[0]))
        else:
            self.span.set_attribute("messaging.batch.message_count", len(ids) if count is None else count)
