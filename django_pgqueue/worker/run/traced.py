"""An attempt with a span around it."""

from __future__ import annotations

from contextlib import contextmanager
from dataclasses import replace
from typing import TYPE_CHECKING

from opentelemetry import trace

from django_pgqueue.tasks import sensitive
from django_pgqueue.traces import consumer
from django_pgqueue.worker.run.execution import Execution
from django_pgqueue.worker.run.outcome import Deferred, EndedAttempt, Failed, Retried, RolledBack

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from typing import Any


class TracedExecution(Execution):
    """The span is current while the task runs: what is called and enqueued there belongs to it."""

    __slots__ = ("span", "span_of_step")

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.span: Any = None
        self.span_of_step: Any = None
        """That of the last step whose function was called."""

    def run(self) -> EndedAttempt:
        with self._current():
            return self._told(super().run())

    async def arun(self) -> EndedAttempt:
        with self._current():
            return self._told(await super().arun())

    def timed_out(self, cut: Callable[[], None] | None = None) -> EndedAttempt:
        """The spans end with the attempt: the thread goes on, perhaps without end."""
        end = super().timed_out(cut)
        self._end(self.span_of_step, end)
        return self._told(end)

    def deferred_uncharged(self) -> EndedAttempt:
        return self._told(super().deferred_uncharged())

    def cancelled_before_it_began(self) -> EndedAttempt:
        self.span = consumer.started(self.message)
        return self._told(super().cancelled_before_it_began())

    def broken(self, error: BaseException) -> EndedAttempt:
        return self._told(super().broken(error))

    @contextmanager
    def step_span(self, name: str) -> Iterator[Any]:
        hidden = sensitive.hides_error(self.message.task, self.backend.settings)
        with consumer.step(self.message, name, hidden=hidden) as self.span_of_step:
            yield

    def _current(self) -> Any:
        self.span = consumer.started(self.message)
        return trace.use_span(self.span, record_exception=False, set_status_on_exception=False)

    def _told(self, end: EndedAttempt) -> EndedAttempt:
        if self.span is not None and self.span.is_recording():
            self.span.set_attribute("pgqueue.outcome", end.outcome.status)
            if isinstance(end.outcome, (Retried, Deferred)):
                self.span.set_attribute("pgqueue.again_in_seconds", end.outcome.wait_seconds)
        self._end(self.span, end)
        return end if self.span is None else replace(end, trace_id=f"{self.span.get_span_context().trace_id:032x}")

    def _end(self, span: Any, end: EndedAttempt) -> None:
        if span is not None and span.is_recording():  # and has not been ended by another thread
            if isinstance(end.outcome, (Retried, Failed, RolledBack)):
                hidden = sensitive.hides_error(self.message.task, self.backend.settings)
                consumer.record_error(span, end.outcome.error, hidden=hidden)
            span.end()
