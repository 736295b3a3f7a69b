"""Traces with OpenTelemetry, for projects whose settings have ``TRACES`` on.

Only modules that need OpenTelemetry import it, and this one does not: projects without traces pay nothing.  Spans have
the names and attributes of OpenTelemetry's conventions for messaging.  No span has the content of a message.
"""

from __future__ import annotations

from functools import cache
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any, Protocol, Self

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from contextlib import AbstractContextManager
    from types import TracebackType

    from django_pgqueue.functions import Received

    class Processed(Protocol):
        """Raw message that a consumer processes."""

        @property
        def received(self) -> Received: ...

        def is_sensitive(self) -> bool: ...


PACKAGE = "opentelemetry.trace"


@cache
def is_installed() -> bool:
    try:
        return find_spec(PACKAGE) is not None
    except ModuleNotFoundError:
        return False


class Sending:
    """Span of an enqueue without traces: all methods do nothing.  ``TracedSending`` makes a real span."""

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        """Ends the span, of which there is none here."""

    def added_to(self, headers: Mapping[str, Any] | None) -> Mapping[str, Any] | None:
        """Returns the headers with the place of this span in its trace, for the consumer of the message."""
        return headers

    def sent(self, *ids: int, count: int | None = None) -> None:
        """Records what was enqueued: one message, or ``count`` of them."""


UNTRACED = Sending()


def sending(*, traced: bool, queue: str | None, task: str | None = None) -> Sending:
    """Returns the span of an enqueue, which is current while it is entered."""
    if not traced or not is_installed():
        return UNTRACED
    from django_pgqueue.traces.producer import TracedSending  # noqa: PLC0415 -- OpenTelemetry, when it is asked for

    return TracedSending(queue=queue, task=task)


def received(messages: Sequence[Received], *, traced: bool, queue: str, began_ns: int) -> None:
    """Makes the span of a ``receive`` that has returned messages."""
    if traced and messages and is_installed():
        from django_pgqueue.traces import consumer  # noqa: PLC0415

        consumer.received(messages, queue=queue, began_ns=began_ns)


def processing(message: Processed) -> AbstractContextManager[Any]:
    """Makes the span of the work of a consumer of raw messages, in the trace of the enqueue.

    It needs the extra ``otel`` and no setting.  It records an exception and raises it again.

    >>> with processing(message):
    ...     pack(message.content)
    ...     message.complete()  # doctest: +SKIP
    """
    from django_pgqueue.traces import consumer  # noqa: PLC0415

    return consumer.processing(message)


def flush() -> None:
    """Sends the spans that wait for their batch; call it before the process ends, which would lose them."""
    if is_installed():
        from django_pgqueue.traces import consumer  # noqa: PLC0415

        consumer.flush()
