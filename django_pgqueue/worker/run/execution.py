"""One attempt of one task, from the message to its outcome."""

from __future__ import annotations

import copy
import json
import logging
from contextlib import nullcontext
from functools import partial
from typing import TYPE_CHECKING, Any

from asgiref.sync import sync_to_async
from django.db import DatabaseError

from django_pgqueue.backend import results, signals
from django_pgqueue.backend.lazy_result import know
from django_pgqueue.compat import TaskError, TaskResultStatus, normalize_json, task_finished, task_started
from django_pgqueue.consumer.forks import forked_children_end_here
from django_pgqueue.durable import DurableContext, Suspension
from django_pgqueue.durable.steps import Steps
from django_pgqueue.exceptions import (
    InvalidContent,
    TaskCancelled,
    TaskTimeout,
    UnknownTask,
)
from django_pgqueue.functions import Error, running
from django_pgqueue.logs import job
from django_pgqueue.tasks import registry, retry, sensitive
from django_pgqueue.tasks.context import PgQueueContext
from django_pgqueue.tasks.expires import require_unexpired
from django_pgqueue.values import content, redaction, times
from django_pgqueue.values.error import stand_in
from django_pgqueue.worker.run import atomic, connect_first, task_signals
from django_pgqueue.worker.run.connections import has_connected, roll_back_what_is_open
from django_pgqueue.worker.run.failure import is_a, looks_back, outcome_of
from django_pgqueue.worker.run.outcome import (
    WITHOUT_RESULT,
    Cancelled,
    Deferred,
    EndedAttempt,
    Failed,
    Outcome,
    Retried,
    RolledBack,
    Succeeded,
)
from django_pgqueue.worker.run.result import alook_back, new_result, result_of
from django_pgqueue.worker.run.shared_thread import limited, shared_thread

if TYPE_CHECKING:
    from collections.abc import Callable
    from contextlib import AbstractContextManager

    from django.dispatch import Signal

    from django_pgqueue.backend.pgqueue import PgQueueBackend
    from django_pgqueue.functions import Received
    from django_pgqueue.models.tables import Attempt
    from django_pgqueue.tasks.context import Reports
    from django_pgqueue.worker.run.connect_first import ConnectFirst
    from django_pgqueue.worker.run.shared_thread import Waits

logger = logging.getLogger("django_pgqueue.worker")

TOO_LATE = "The timeout of the task ran out before it began."
FEW_ATTEMPTS = 10
"""Up to this many earlier attempts are read before an async task that takes its context: reading them when the task
looks would stop its event loop for that moment."""


class Execution:
    """Runs a message's task once, and returns how it ended.

    It writes nothing itself: the recorder writes the outcome.  Only an atomic task completes its message in its own
    transaction.  Whatever a task raises becomes an outcome, except KeyboardInterrupt.  The signals are those of
    django.tasks.
    """

    __slots__ = (
        "args",
        "backend",
        "blocks",
        "cannot_return",
        "clock",
        "connect_first",
        "earlier",
        "errors",
        "finished_us",
        "is_cut",
        "is_late",
        "is_lost",
        "is_over",
        "kwargs",
        "message",
        "reports",
        "result_or_none",
        "session",
        "started_us",
        "steps",
        "task",
        "waits",
    )

    def __init__(
        self,
        message: Received,
        *,
        backend: PgQueueBackend,
        clock: Callable[[], int],
        reports: Reports,
        connect_first: ConnectFirst | None = None,
    ) -> None:
        """``clock`` returns microseconds since 1970, by the database's clock.  ``connect_first``: that of the worker's
        process.
        """
        self.message = message
        self.backend = backend
        self.clock = clock
        self.reports = reports
        self.connect_first = connect_first
        self.started_us = self.finished_us = clock()
        self.task: Any = None
        self.args: list[Any] | None = None
        self.kwargs: dict[str, Any] = {}
        self.result_or_none: Any = None
        self.earlier: list[Attempt] | None = None
        self.errors: list[TaskError] = []
        self.is_over = False
        """Its outcome is known: nothing that happens from now on can change it."""
        self.is_late = False
        """Its time is up."""
        self.is_cut = False
        """The statement that it waited for then is cancelled."""
        self.is_lost = False
        self.cannot_return = False
        """The task has ended with a value that cannot be stored: another attempt would repeat its effects."""
        self.session: Any = None
        """The driver's connection that an atomic task's transaction is in."""
        self.blocks = 0
        """The number of ``transaction.atomic()`` that are open around the task."""
        self.steps: Steps | None = None
        """Those of a durable task, from its begin on."""
        self.waits: Waits | None = None
        """Those of an async task in a worker, and of one that has looked for a connection."""

    def run(self) -> EndedAttempt:
        hide = sensitive.hides_message(self.message.task, self.backend.settings)
        token = running.set(self.message)  # what job() does, in a fifth of its time
        try:
            if hide == redaction.is_redacting():
                return self._run()
            with redaction.redacted(hide):
                return self._run()
        finally:
            running.reset(token)

    def _run(self) -> EndedAttempt:
        try:
            self.prepare()
            self.send_started()
            outcome = self.attempt()
            self.send_finished()
            return self.ended(outcome)
        except BaseException as exception:  # SystemExit too is the failure of a task
            if signals.is_ctrl_c(exception):
                raise
            if self.steps is not None and is_a(exception, Suspension):
                self.steps.tell_unasked()
            if self.connect_first is not None:
                self.connect_first.learn(self, exception)
            outcome = outcome_of(self, exception)
            self.send_finished(outcome)
            return self.ended(outcome, exception)

    async def arun(self) -> EndedAttempt:
        hide = sensitive.hides_message(self.message.task, self.backend.settings)
        with job(self.message), redaction.redacted(hide):
            return await self._arun()

    async def _arun(self) -> EndedAttempt:
        try:
            self.prepare()
            await self.asend_started()
            outcome = await self.aattempt()
            await self.asend_finished()
            return self.ended(outcome)
        except BaseException as exception:
            if signals.is_ctrl_c(exception):
                raise
            if is_a(exception, Suspension):
                await self.atell_unasked()
            if self.connect_first is not None:
                await self.connect_first.alearn(self, exception)
            if self.earlier is None and looks_back(self, exception):
                await alook_back(self)
            outcome = outcome_of(self, exception)
            await self.asend_finished(outcome)
            return self.ended(outcome, exception)

    # The steps

    def prepare(self) -> None:
        self.task = registry.find_patiently(self.message.task or "")
        try:
            args, self.kwargs = results.called(self.message)
            if self.message.headers is not None:  # headers may be nonsense, too
                self.result_or_none = new_result(self, args)
        except (KeyError, TypeError, AttributeError, json.JSONDecodeError) as error:
            shown = "what it is" if redaction.is_redacting() else self.message.content[:80]
            message = (
                f"The content of message {self.message.id} is not the call of a task: it must be "
                f'{{"args": [...], "kwargs": {{...}}}}, not {shown}.'
            )
            raise InvalidContent(message) from error
        refusal = registry.parameters(self.message.task or "").refusal(args, self.kwargs)
        if refusal is not None and self.gives_back:
            message = f"The task {self.message.task} of this worker cannot take these arguments: {refusal}."
            raise UnknownTask(message)
        if self.message.headers is not None:
            require_unexpired(self.message, times.from_microseconds(self.started_us))
        self.args = args

    @property
    def gives_back(self) -> bool:
        """Whether a message that this worker does not know waits for another one."""
        return self.backend.settings.unknown_task_seconds > 0

    def send_started(self) -> None:
        if signals.is_heard(task_started):
            task_signals.send(self, task_started)

    async def asend_started(self) -> None:
        await task_signals.asend(self, task_started)

    def attempt(self) -> Outcome:
        if self.is_over:  # its time was up before the task began: this end is not used
            return Failed(Error.of(TOO_LATE))
        if getattr(self.task, "atomic", False):
            return atomic.run_atomically(self)
        if self.connect_first is not None and self.connect_first.is_on:
            connect_first.connect(self)
        value = self.call()
        if self.steps is not None:
            self.steps.tell_unasked()
        return self._succeeded(value)

    async def aattempt(self) -> Outcome:
        if self.is_over:
            return Failed(Error.of(TOO_LATE))
        if self.connect_first is not None and self.connect_first.is_on:
            await connect_first.aconnect(self, self.connect_first)
        if self.task.takes_context and 1 < self.message.attempt <= FEW_ATTEMPTS:
            await sync_to_async(know)(self.result)
        value = await self.acall()
        await self.atell_unasked()
        return self._succeeded(value)

    def send_finished(self, outcome: Outcome | None = None) -> None:
        """Called inside the except block: receivers find the exception of a failure in ``sys.exc_info()``."""
        if self._claim_end() and (result := self.result_or_none) is not None and result.is_finished:
            task_signals.send(self, task_finished, task_signals.shown(outcome))

    async def asend_finished(self, outcome: Outcome | None = None) -> None:
        if self._claim_end() and (result := self.result_or_none) is not None and result.is_finished:
            await task_signals.asend(self, task_finished, task_signals.shown(outcome))

    def ended(self, outcome: Outcome, exception: BaseException | None = None) -> EndedAttempt:
        tell = None
        if exception is not None and isinstance(outcome, (Retried, Deferred, RolledBack)):
            tell = partial(task_signals.send_delayed, self, exception)
        end = EndedAttempt(self.message, outcome, self.started_us, self.finished_us, tell)
        if exception is not None and isinstance(outcome, (Failed, Retried, RolledBack)):
            self._show(end, exception, outcome.error)
        return end

    def _show(self, end: EndedAttempt, exception: BaseException, error: Error) -> None:
        if not sensitive.hides_error(self.message.task, self.backend.settings):
            end.exception = exception if error.printable else stand_in(error)
        if self.task is not None:  # any name may stand in a row, and a logger is for ever
            end.logger = f"{logger.name}.{self.message.task}"

    def _claim_end(self) -> bool:
        """Returns False if its time was up before: then receivers know of its end already."""
        was_over, self.is_over = self.is_over, True
        return not was_over

    def clean_up_after_receivers(self, signal: Signal) -> None:
        """Rolls back what a receiver began and did not end: the task would write into it, and lose that."""
        if has_connected():
            roll_back_what_is_open(self.message, f"A receiver of {signals.NAMES[signal]}")

    @property
    def result(self) -> Any:
        """The ``TaskResult``.  None: the message is not the call of a task."""
        return result_of(self)

    # Other ends

    def timed_out(self, cut: Callable[[], None] | None = None) -> EndedAttempt:
        """Returns the end of an attempt whose thread goes on.  It is made on a copy, because the thread still has this
        one.  ``cut`` causes an error in that thread, which must not get into the copy.
        """
        mine = copy.copy(self)
        mine.is_over, self.is_over = False, True
        with job(self.message):
            return mine._time_out(cut)  # noqa: SLF001

    def unended(self, seconds: float) -> EndedAttempt:
        """Returns the end of an attempt whose time is up, and whose backoff or receivers have not returned since."""
        timeout = self._timeout(registry.timeout_seconds(self.message.task or ""))
        hint = (
            f"The task's backoff, or a receiver of its signals, has not returned for {seconds:g} seconds after that. "
            "The worker does not wait for it: give what it calls a timeout."
        )
        message = self.message
        logger.error("not waited for id=%s task=%s attempt=%s: %s", message.id, message.task, message.attempt, hint)
        return copy.copy(self).broken(TaskTimeout(f"{timeout} {hint}"))

    def deferred_uncharged(self) -> EndedAttempt:
        """Returns the end of an attempt that cannot go on because of others in its process: it does not count."""
        mine = copy.copy(self)
        self.is_over = True
        mine.finished_us = self.clock()
        return mine.ended(Deferred(0.0, None))

    def _time_out(self, cut: Callable[[], None] | None) -> EndedAttempt:
        try:
            if self.args is None:  # the time was up before anything began
                self.prepare()
            else:
                self.result_or_none = copy.copy(self.result)
                self.set(errors=list(self.result.errors))
            if cut is not None:
                cut()
            raise self._timeout(registry.timeout_seconds(self.message.task or ""))  # noqa: TRY301 -- it gets a traceback
        except Exception as exception:  # noqa: BLE001
            outcome = outcome_of(self, exception)
            self.send_finished(outcome)
            return self.ended(outcome, exception)

    def cancelled_before_it_began(self) -> EndedAttempt:
        """Returns the end of a task of which nothing runs: there are no signals."""
        return self.ended(Cancelled(Error.of(TaskCancelled("A user asked the task to stop before it began."))))

    def broken(self, error: BaseException) -> EndedAttempt:
        """Returns the end when the task did not raise, but something around it: an attempt like others that failed.  It
        calls no code of the project, and so it cannot fail itself.
        """
        self.finished_us = self.clock()
        described, attempt, max_attempts = Error.of(error), self.message.attempt, self.message.max_attempts
        if max_attempts is None or attempt >= max_attempts:
            end = self.ended(Failed(described))
        else:
            end = self.ended(Retried(described, retry.DEFAULT.seconds(attempt=attempt)))
        self._show(end, error, described)
        return end

    # The call

    def call(self) -> Any:
        # task.call asks each time what kind of function it is; here that is known.
        call = self.task.call if registry.is_async(self.message.task or "") else self.task.func
        with forked_children_end_here:
            return call(*self.arguments(), **self.kwargs)

    async def acall(self) -> Any:
        with forked_children_end_here:
            return await self._acall_within(registry.timeout_seconds(self.message.task or ""))

    async def _acall_within(self, seconds: float | None) -> Any:
        if seconds is None:
            return await self.task.func(*self.arguments(), **self.kwargs)
        try:
            async with limited(seconds, self.waited) as limit:
                return await self.task.func(*self.arguments(), **self.kwargs)
        except (TimeoutError, DatabaseError) as error:
            # The error of a cancelled statement comes before the cancellation, or in its place.
            if limit.expired() or (self.is_late and isinstance(error, DatabaseError)):
                self.is_late = True
                raise self._timeout(seconds) from error
            raise

    def waited(self) -> float:
        """Returns for how many seconds it has waited for a connection, or for database work of other async tasks."""
        return 0.0 if self.waits is None else shared_thread().waited(self)

    def _timeout(self, seconds: float | None) -> TaskTimeout:
        return TaskTimeout(f"The task {self.message.task} took longer than its timeout of {seconds:g} seconds.")

    def arguments(self) -> list[Any]:
        args = self.args or []
        if not self.task.takes_context:
            return args
        given: dict[str, Any] = {
            "task_result": self.result,
            "message": self.message,
            "reports": self.reports,
            "max_bytes": self.backend.settings.max_content_bytes,
            "database": self.backend.settings.database,
        }
        if getattr(self.task, "durable", False):
            self.steps = self._steps()
            return [DurableContext(**given, steps=self.steps), *args]
        return [PgQueueContext(**given), *args]

    def _steps(self) -> Steps:
        return Steps(
            self.message,
            database=self.backend.settings.database,
            max_bytes=self.backend.settings.max_content_bytes,
            clock=lambda: times.from_microseconds(self.clock()),
            has_ended=lambda: self.is_over,
            blocks=self.blocks,
            span=self.step_span,
        )

    async def atell_unasked(self) -> None:
        if self.steps is not None and self.steps.unasked():
            await sync_to_async(self.steps.tell_unasked)()

    def step_span(self, name: str) -> AbstractContextManager[Any]:  # noqa: ARG002 -- that of TracedExecution takes it
        return nullcontext()

    # How it ended

    def _succeeded(self, value: Any) -> Outcome:
        if self.steps is not None:
            self.steps.require_uninterrupted()
        normal, text = (None, None) if value is None else self.returned(value)
        self.finished_us = self.clock()
        self.succeed(normal)
        return WITHOUT_RESULT if text is None else Succeeded(text)

    def returned(self, value: Any) -> tuple[Any, str | None]:
        if value is None:
            return None, None
        try:
            normal = _normal(value)
            limit = self.backend.settings.max_content_bytes
            return normal, content.dump(normal, max_bytes=limit, what="the task's return value")
        except Exception:
            self.cannot_return = True
            raise

    def state(self, state: Any) -> str | None:
        normal = content.normalize(state, "state")
        limit = self.backend.settings.max_content_bytes
        return None if normal is None else content.dump(normal, max_bytes=limit, what="state")

    def succeed(self, value: Any) -> None:
        if self.result_or_none is not None or signals.is_heard(task_finished):
            self.finish(TaskResultStatus.SUCCESSFUL, _return_value=value)

    def finish(self, status: TaskResultStatus, **changes: Any) -> None:
        self.set(status=status, finished_at=times.as_django(times.from_microseconds(self.finished_us)), **changes)

    def set(self, **changes: Any) -> None:
        for name, value in changes.items():
            object.__setattr__(self.result, name, value)


def _normal(value: Any) -> Any:
    try:
        return content.normalize(value, "the task's return value")
    except InvalidContent as error:
        try:
            normalize_json(value)
        except (TypeError, ValueError) as refused:  # recorded as Django's own error, with a text that names the value
            refused.args = (str(error),)
            raise refused from None
        raise
