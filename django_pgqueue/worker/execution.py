"""One attempt of one task, from the message to its outcome."""

from __future__ import annotations

import asyncio
import copy
import json
import logging
import math
import threading
from typing import TYPE_CHECKING, Any

from asgiref.sync import sync_to_async
from django.db import DatabaseError, InterfaceError, InternalError, OperationalError, connections, transaction

from django_pgqueue import content, functions, registry, results, retry
from django_pgqueue.compat import (
    AnyTaskResult,
    TaskError,
    TaskResultStatus,
    normalize_json,
    task_finished,
    task_started,
)
from django_pgqueue.context import Deferral, PgQueueContext
from django_pgqueue.exceptions import (
    AttemptLost,
    InvalidContent,
    Retry as RetryAsked,
    TaskCancelled,
    TaskTimeout,
    UnknownTask,
)
from django_pgqueue.functions import Error
from django_pgqueue.worker.outcome import (
    Abandoned,
    Cancelled,
    Committed,
    Deferred,
    Ended,
    Failed,
    Outcome,
    Retry,
    Succeeded,
)

if TYPE_CHECKING:
    import datetime as dt
    from collections.abc import Callable

    from django_pgqueue.backend import PgQueueBackend
    from django_pgqueue.context import Reports
    from django_pgqueue.functions import Received

logger = logging.getLogger("django_pgqueue.worker")


class Execution:
    """Runs a message's task once and says how it ended.

    Nothing is written: recording the outcome is another's work, except for an atomic task, whose completion is part of
    its own transaction.  Whatever the task raises is an outcome, except KeyboardInterrupt.  The signals are those of
    django.tasks.
    """

    __slots__ = (
        "backend",
        "clock",
        "earlier",
        "finished_at",
        "message",
        "reports",
        "result",
        "session",
        "started_at",
        "task",
    )

    def __init__(
        self, message: Received, *, backend: PgQueueBackend, clock: Callable[[], dt.datetime], reports: Reports
    ) -> None:
        self.message = message
        self.backend = backend
        self.clock = clock
        self.reports = reports
        self.started_at = self.finished_at = clock()
        self.task: Any = None
        self.result: AnyTaskResult
        self.earlier: list[Any] = []
        self.session: Any = None
        """The driver's connection that an atomic task's transaction is in."""

    def run(self) -> Ended:
        try:
            self._look_back()
            self._start()
            if getattr(self.task, "atomic", False):
                return self._ended(self._run_atomically())
            return self._ended(self._succeeded(self._call()))
        except BaseException as exception:  # SystemExit too is the failure of a task
            if _is_ctrl_c(exception):
                raise
            return self._ended(self._not_succeeded(exception))

    async def arun(self) -> Ended:
        try:
            if self.message.attempt > 1:  # Django's ORM is not spoken in an event loop
                await sync_to_async(self._look_back)()
            self._start()
            value = await self._acall()
            return self._ended(self._succeeded(value))
        except BaseException as exception:
            if _is_ctrl_c(exception):
                raise
            return self._ended(self._not_succeeded(exception))

    def cancelled_before_it_began(self) -> Ended:
        """Nothing of it runs, and so there are no signals."""
        return self._ended(Cancelled(Error.of(TaskCancelled("Somebody asked the task to stop before it began."))))

    def broken(self, error: BaseException) -> Ended:
        """The end when something around the task, a receiver of a signal for one, wants to end the program."""
        self.finished_at = self.clock()
        return self._ended(Failed(Error.of(error)))

    def _look_back(self) -> None:
        if self.message.attempt == 1:
            return
        try:
            self.earlier = results.earlier_attempts(self.message.id, database=self.backend.settings.database)
        except (DatabaseError, InterfaceError):  # what happened before is worth knowing, not worth failing for
            logger.warning("The earlier attempts of message id=%s can not be read.", self.message.id, exc_info=True)

    def _start(self) -> None:
        self.task = registry.find(self.message.task or "")
        self.result = self._result(self.earlier)
        task_started.send_robust(type(self.backend), task_result=self.result)

    def _result(self, earlier: list[Any]) -> AnyTaskResult:
        try:
            return results.running(
                self.message, self.task, backend=self.backend, started_at=self.started_at, earlier=earlier
            )
        except (KeyError, TypeError, AttributeError, json.JSONDecodeError) as error:
            message = (
                f"The content of message {self.message.id} is not the call of a task: it must be "
                f'{{"args": [...], "kwargs": {{...}}}}, not {self.message.content[:80]}.'
            )
            raise InvalidContent(message) from error

    def _call(self) -> Any:
        # task.call asks each time what kind of function it is; here that is known.
        call = self.task.call if registry.is_async(self.message.task or "") else self.task.func
        return call(*self._arguments(), **self.result.kwargs)

    async def _acall(self) -> Any:
        seconds = registry.timeout_seconds(self.message.task or "")
        try:
            async with asyncio.timeout(seconds) as limit:
                return await self.task.func(*self._arguments(), **self.result.kwargs)
        except TimeoutError as error:
            if limit.expired():
                raise self._timeout(seconds) from error
            raise

    def timed_out(self) -> Ended:
        """The end of an attempt whose thread goes on: made on a copy, because the thread still has this one."""
        other = copy.copy(self)
        if hasattr(self, "result"):
            other.result = copy.copy(self.result)
            object.__setattr__(other.result, "errors", list(self.result.errors))
        try:
            raise self._timeout(registry.timeout_seconds(self.message.task or ""))
        except TaskTimeout as exception:
            return other._ended(other._not_succeeded(exception))  # noqa: SLF001

    def _timeout(self, seconds: float | None) -> TaskTimeout:
        return TaskTimeout(f"The task {self.message.task} took longer than its timeout of {seconds:g} seconds.")

    def _arguments(self) -> list[Any]:
        if not self.task.takes_context:
            return self.result.args
        context = PgQueueContext(
            task_result=self.result,
            message=self.message,
            reports=self.reports,
            max_bytes=self.backend.settings.max_content_bytes,
        )
        return [context, *self.result.args]

    # How it ended

    def _succeeded(self, value: Any) -> Outcome:
        normal, text = self._returned(value)
        self.finished_at = self.clock()
        self._finish(TaskResultStatus.SUCCESSFUL, _return_value=normal)
        return Succeeded(text)

    def _run_atomically(self) -> Outcome:
        """The task, its writes, its enqueues and its completion are one transaction: all happens once, or nothing."""
        database = self.backend.settings.database
        completed = False
        try:
            with transaction.atomic(using=database):
                self.session = connections[database].connection
                normal, text = self._returned(self._call())
                self._complete(connections[database], text)
                completed = True
        except Exception:
            if not completed or not self._is_committed():
                raise
            logger.exception("What message id=%s left for on_commit() failed; the message is done.", self.message.id)
        self._finish(TaskResultStatus.SUCCESSFUL, _return_value=normal)
        return Committed()

    def _is_committed(self) -> bool:
        try:
            attempts = results.earlier_attempts(self.message.id, database=self.backend.settings.database)
        except (DatabaseError, InterfaceError):
            return False
        return any(attempt.status == "succeeded" for attempt in attempts)

    def _complete(self, connection: Any, text: str | None) -> None:
        try:
            self.finished_at = self.clock()
            end = functions.Success(self.message.id, self.message.attempt, text, self.started_at, self.finished_at)
            ours = functions.message_complete(connection, [end], worker=self.message.worker)
        except (InternalError, transaction.TransactionManagementError) as error:
            message = (
                f"{self.message.task} is atomic, and its transaction can only be rolled back: it went on after an "
                "error of the database, or called set_rollback(). Put what may fail into a savepoint: "
                "with transaction.atomic(): ..."
            )
            raise transaction.TransactionManagementError(message) from error
        if not ours:
            message = f"Message {self.message.id}: attempt {self.message.attempt} was lost, and is rolled back."
            raise AttemptLost(message)

    def _returned(self, value: Any) -> tuple[Any, str | None]:
        normal = _normal(value)
        limit = self.backend.settings.max_content_bytes
        text = None if normal is None else content.dump(normal, max_bytes=limit, what="the task's return value")
        return normal, text

    def _not_succeeded(self, exception: BaseException) -> Outcome:
        """Called inside the except block: receivers of the signal find the exception in ``sys.exc_info()``."""
        self.finished_at = self.clock()
        state = None
        if isinstance(exception, (Deferral, RetryAsked)):
            try:
                state = self._state(exception.state)
            except InvalidContent as invalid:
                exception = invalid
        if isinstance(exception, Deferral):
            self._set(status=TaskResultStatus.READY)
            return Deferred(exception.wait_seconds, state)
        error = Error.of(exception)
        if self.task is None or not hasattr(self, "result"):
            return Cancelled(error) if self._was_cancelled(exception) else Failed(error)
        self.result.errors.append(
            TaskError(exception_class_path=error.error_class or "", traceback=error.traceback or error.message)
        )
        outcome = self._outcome_of(exception, error, state)
        if isinstance(outcome, (Failed, Cancelled)):
            self._finish(TaskResultStatus.FAILED)
        else:
            self._set(status=TaskResultStatus.READY)
        return outcome

    def _outcome_of(self, exception: BaseException, error: Error, state: str | None) -> Outcome:
        if self._went_down_with_its_connection(exception):
            return Abandoned(error)
        if self._was_cancelled(exception):
            return Cancelled(error)
        if isinstance(exception, RetryAsked):
            return self._retry_asked(exception, error, state)
        wait_seconds = self._wait_seconds(exception)
        return Failed(error) if wait_seconds is None else Retry(error, wait_seconds)

    def _retry_asked(self, exception: RetryAsked, error: Error, state: str | None) -> Outcome:
        used, last = self.message.attempt, self.message.max_attempts
        if last is None:  # and so was not raised by those that were deferred
            used, last = 1 + sum(attempt.status != "deferred" for attempt in self.earlier), retry.ASKED_ATTEMPTS
        if used >= last:
            return Failed(error)
        wait_seconds = exception.wait_seconds
        if wait_seconds is None:
            wait_seconds = retry.DEFAULT.seconds(attempt=self.message.attempt)
        return Retry(error, wait_seconds, state, retry.ASKED_ATTEMPTS)

    def _wait_seconds(self, exception: BaseException) -> float | None:
        last = self.message.max_attempts
        if last is None or self.message.attempt >= last or not self._is_worth_a_retry(exception):
            return None
        backoff = getattr(self.task, "backoff", None) or retry.DEFAULT
        try:
            wait_seconds = backoff(exception, self.result)
            return None if wait_seconds is None else _number_of_seconds(wait_seconds)
        except Exception:
            logger.exception("The backoff of task=%s failed; the default is used.", self.message.task)
            return retry.DEFAULT.seconds(attempt=self.message.attempt)

    def _is_worth_a_retry(self, exception: BaseException) -> bool:
        if isinstance(exception, (UnknownTask, *getattr(self.task, "no_retry_on", ()))):
            return False
        retry_on = getattr(self.task, "retry_on", None)
        return retry_on is None or isinstance(exception, retry_on)

    def _went_down_with_its_connection(self, exception: BaseException) -> bool:
        if not getattr(self.task, "atomic", False):
            return False
        if isinstance(exception, AttemptLost):
            return True
        if not isinstance(exception, (OperationalError, InterfaceError)):
            return False
        # Not Django's connection: it has opened another session by now.
        return self.session is None or bool(self.session.closed)

    def _was_cancelled(self, exception: BaseException) -> bool:
        return isinstance(exception, (TaskCancelled, asyncio.CancelledError)) and self.reports.is_cancelled(
            self.message
        )

    def _state(self, state: Any) -> str | None:
        normal = content.normalize(state, "state")
        limit = self.backend.settings.max_content_bytes
        return None if normal is None else content.dump(normal, max_bytes=limit, what="state")

    def _finish(self, status: TaskResultStatus, **changes: Any) -> None:
        self._set(status=status, finished_at=results.as_django(self.finished_at), **changes)
        task_finished.send_robust(type(self.backend), task_result=self.result)

    def _set(self, **changes: Any) -> None:
        for name, value in changes.items():
            object.__setattr__(self.result, name, value)

    def _ended(self, outcome: Outcome) -> Ended:
        return Ended(self.message, outcome, self.started_at, self.finished_at)


def _number_of_seconds(value: Any) -> float:
    seconds = float(value)
    if math.isnan(seconds):
        message = f"{value!r} is no number of seconds."
        raise ValueError(message)
    return max(0.0, seconds)


def _is_ctrl_c(exception: BaseException) -> bool:
    """Python interrupts the main thread only.  In a slot of a worker it is a task that raises, and fails."""
    return isinstance(exception, KeyboardInterrupt) and threading.current_thread() is threading.main_thread()


def _normal(value: Any) -> Any:
    try:
        return content.normalize(value, "the task's return value")
    except InvalidContent:
        normalize_json(value)  # what Django refuses is recorded as Django's own error
        raise
