"""Traces by OpenTelemetry, for those whose settings ask for them (``TRACES``).

This module imports nothing of it, and neither does any other that does not have to: who does not ask pays nothing.
Spans have the names and attributes of OpenTelemetry's conventions for messaging.  What a message says is in none of
them.
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
        """A raw message in the hands of its consumer."""

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
    """What an enqueue says to its trace.  This one says it to nobody."""

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        """There is no span to be ended."""

    def added_to(self, headers: Mapping[str, Any] | None) -> Mapping[str, Any] | None:
        """Headers with the place of this span in its trace, for whoever runs the message."""
        return headers

    def sent(self, *ids: int, count: int | None = None) -> None:
        """What was enqueued: one message, or ``count`` of them."""


UNTRACED = Sending()


def sending(*, traced: bool, queue: str | None, task: str | None = None) -> Sending:
    """The span of an enqueue, current while it is entered."""
    if not traced or not is_installed():
        return UNTRACED
    from django_pgqueue.traces.producer import TracedSending  # noqa: PLC0415 -- OpenTelemetry, when it is asked for

    return TracedSending(queue=queue, task=task)


def received(messages: Sequence[Received], *, traced: bool, queue: str, began_ns: int) -> None:
    """The span of a ``receive`` that has found something."""
    if traced and messages and is_installed():
        from django_pgqueue.traces import consumer  # noqa: PLC0415

        consumer.received(messages, queue=queue, began_ns=began_ns)


def processing(message: Processed) -> AbstractContextManager[Any]:
    """For consumers of raw messages: the span of the work, in the trace of whoever sent the message.

    It needs the extra ``otel``, and no setting.  An exception that leaves it is recorded, and goes on.

    >>> with processing(message):
    ...     pack(message.content)
    ...     message.complete()  # doctest: +SKIP
    """
    from django_pgqueue.traces import consumer  # noqa: PLC0415

    return consumer.processing(message)


def flush() -> None:
    """Before a process leaves: spans that wait for their batch would be lost with it."""
    if is_installed():
        from django_pgqueue.traces import consumer  # noqa: PLC0415

        consumer.flush()
