"""Turns the exception of an attempt into its outcome: tried again, given up, or cancelled."""

from __future__ import annotations

import asyncio
import datetime as dt
import math
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, TypeGuard, TypeVar

from django.db import InterfaceError, InternalError, OperationalError

from django_pgqueue.backend.lazy_result import is_known
from django_pgqueue.backend.result import PgQueueTaskError
from django_pgqueue.compat import TaskError, TaskResultStatus
from django_pgqueue.durable import Suspension
from django_pgqueue.exceptions import (
    AttemptLost,
    InvalidContent,
    Retry,
    TaskBeingImported,
    TaskCancelled,
    TaskExpired,
    UnknownTask,
)
from django_pgqueue.functions import Error
from django_pgqueue.logs import log_trouble
from django_pgqueue.tasks import retry
from django_pgqueue.tasks.context import Deferral
from django_pgqueue.worker.run.outcome import (
    Cancelled,
    Deferred,
    Failed,
    GivenBack,
    Outcome,
    Retried,
    RolledBack,
    Suspended,
)
from django_pgqueue.worker.run.result import earlier_attempts

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from django_pgqueue.compat import AnyTaskResult
    from django_pgqueue.functions import Received
    from django_pgqueue.models.tables import Attempt
    from django_pgqueue.tasks.context import Reports
    from django_pgqueue.worker.run.execution import Execution

E = TypeVar("E", bound=BaseException)


def outcome_of(execution: Execution, exception: BaseException) -> Outcome:
    execution.finished_us = execution.clock()
    exception, state = asked_for(exception), None
    if is_a(exception, (Deferral, Retry)):
        try:
            state = execution.state(getattr(exception, "state", None))
        except InvalidContent as invalid:
            exception = invalid
    if is_a(exception, (Deferral, Suspension)):
        execution.set(status=TaskResultStatus.READY)
        wait_seconds = getattr(exception, "wait_seconds", None)
        return Suspended(exception.wait) if is_a(exception, Suspension) else Deferred(wait_seconds or 0.0, state)
    error = Error.of(exception)
    if is_a(exception, UnknownTask) and (not_begun := _not_begun(execution, exception, error)) is not None:
        return not_begun
    if execution.result is None:
        cancelled = was_cancelled(exception, execution.message, execution.reports)
        return Cancelled(error) if cancelled else Failed(error)
    _add_error(
        execution,
        PgQueueTaskError(exception_class_path=error.error_class or "", traceback=error.traceback or error.message),
    )
    if _went_down_with_its_connection(execution, exception):
        outcome: Outcome = RolledBack(error)
    else:
        outcome = _verdict(execution).on(exception, error, state)
    if isinstance(outcome, (Failed, Cancelled)):
        execution.finish(TaskResultStatus.FAILED)
    else:
        execution.set(status=TaskResultStatus.READY)
    return outcome


def looks_back(execution: Execution, exception: BaseException) -> bool:
    """Whether ``outcome_of`` may need the attempts before this one."""
    exception = asked_for(exception)
    if execution.result is None or is_a(exception, (Deferral, Suspension)):
        return False
    return _verdict(execution).looks_back(exception)


def _verdict(execution: Execution) -> Verdict:
    return Verdict(
        execution.message,
        execution.task,
        execution.result,
        execution.reports,
        partial(earlier_attempts, execution),
        execution.backend.max_attempts(execution.task),
        is_begun=execution.args is not None,
        has_ended=execution.cannot_return,
    )


def _not_begun(execution: Execution, exception: UnknownTask, error: Error) -> Outcome | None:
    if is_a(exception, TaskBeingImported):  # no fault of the task: as many attempts as one that raises Retry
        return Retried(error, retry.DEFAULT.seconds(attempt=execution.message.attempt), None, retry.ASKED_ATTEMPTS)
    return GivenBack(error) if execution.args is None and execution.gives_back else None


def _add_error(execution: Execution, error: TaskError) -> None:
    if is_known(execution.result):
        execution.result.errors.append(error)
    else:
        execution.errors.append(error)


def _went_down_with_its_connection(execution: Execution, exception: BaseException) -> bool:
    if execution.is_lost or (execution.steps is not None and isinstance(execution.steps.interrupted, AttemptLost)):
        return True
    # A session that was idle in its transaction for too long ends with an InternalError.
    kinds = (OperationalError, InterfaceError, InternalError)
    if not getattr(execution.task, "atomic", False) or not is_a(exception, kinds):
        return False
    # The driver's connection, not Django's, which has opened another session by now.
    return execution.session is None or bool(execution.session.closed)


@dataclass(frozen=True, slots=True)
class Verdict:
    message: Received
    task: Any
    result: AnyTaskResult
    reports: Reports
    earlier: Callable[[], Sequence[Attempt]]
    asked_attempts: int | None = None
    """The max_attempts that a message of the task has by default."""
    is_begun: bool = True
    has_ended: bool = False
    """The task has, with a value that cannot be stored."""

    def on(self, exception: BaseException, error: Error, state: str | None) -> Outcome:
        has_expired = is_a(exception, TaskExpired) and not self.is_begun
        if has_expired or was_cancelled(exception, self.message, self.reports):
            return Cancelled(error)
        if is_a(exception, Retry):
            return self._retry_asked(exception, error, state)
        if not self._has_attempts_left() or not self._is_worth_a_retry(exception):
            return Failed(error)
        return self._retry_in(self._backoff_seconds(exception), error)

    def looks_back(self, exception: BaseException) -> bool:
        """Whether it may need the earlier attempts: it counts them, or a backoff of the project's reads the result."""
        if self._all_attempts_count() and (self.message.attempt == 1 or _only_counts(self._backoff)):
            return False
        if is_a(exception, Retry):
            return _asked_seconds(exception) is None
        return self._has_attempts_left() and self._is_worth_a_retry(exception)

    def _retry_asked(self, exception: BaseException, error: Error, state: str | None) -> Outcome:
        # A task without max_attempts has five, less the deferred ones: SQL counts them.
        if self.message.max_attempts is not None and not self._has_attempts_left():
            return Failed(error)
        wait_seconds = _asked_seconds(exception)
        return self._retry_in(self._backoff_seconds(exception) if wait_seconds is None else wait_seconds, error, state)

    def _retry_in(self, wait_seconds: float | None, error: Error, state: str | None = None) -> Outcome:
        return Failed(error) if wait_seconds is None else Retried(error, wait_seconds, state, retry.ASKED_ATTEMPTS)

    def _has_attempts_left(self) -> bool:
        return self.message.max_attempts is not None and self.message.attempt < self.message.max_attempts

    def _is_worth_a_retry(self, exception: BaseException) -> bool:
        if self.has_ended or is_a(exception, (UnknownTask, *getattr(self.task, "no_retry_on", ()))):
            return False
        retry_on = getattr(self.task, "retry_on", None)
        return retry_on is None or is_a(exception, retry_on)

    def _backoff_seconds(self, exception: BaseException) -> float | None:
        """Returns None if the backoff gives up."""
        backoff = self._backoff
        try:
            if _only_counts(backoff):
                return _number_of_seconds(backoff.seconds(attempt=self._attempts_that_count()))
            wait_seconds = backoff(exception, self.result)
            return None if wait_seconds is None else _number_of_seconds(wait_seconds)
        except Exception as trouble:  # noqa: BLE001
            log_trouble(f"The backoff of task={self.message.task} failed; the default is used.", trouble)
            return retry.DEFAULT.seconds(attempt=self._attempts_that_count())

    @property
    def _backoff(self) -> retry.Backoff:
        return getattr(self.task, "backoff", None) or retry.DEFAULT

    def _attempts_that_count(self) -> int:
        """Returns the number of attempts without those that were deferred or lost: a task that has looked a dozen
        times, or whose workers were killed, must not wait an hour after one error.
        """
        if self._all_attempts_count():
            return self.message.attempt
        return 1 + sum(attempt.status not in {"deferred", "lost", "suspended"} for attempt in self.earlier())

    def _all_attempts_count(self) -> bool:
        """Whether none of them was deferred or lost: each of those would have raised max_attempts by one."""
        is_as_asked = self.asked_attempts is not None and self.message.max_attempts == self.asked_attempts
        return self.message.attempt == 1 or is_as_asked


def _only_counts(backoff: retry.Backoff) -> TypeGuard[retry.Exponential]:
    """Whether it depends on nothing but the number of attempts.  A derived class may decide by the exception."""
    return isinstance(backoff, retry.Exponential) and type(backoff).__call__ is retry.Exponential.__call__


def was_cancelled(exception: BaseException, message: Received, reports: Reports) -> bool:
    return is_a(exception, (TaskCancelled, asyncio.CancelledError)) and reports.is_cancelled(message)


def asked_for(exception: BaseException) -> BaseException:
    """Returns what a task asked for by raising it.  A child of a task group raises it in an exception group.

    Children may ask at the same time.  A stop comes first; then a retry, whose error must not go unseen; then a defer.
    Of one kind the longest wait counts, because its child does not want to run sooner.  With any other exception in it
    the group is an error like others.
    """
    if not is_a(exception, BaseExceptionGroup):
        return exception
    asked = list(_leaves(exception))
    for kind in (TaskCancelled, Retry, Deferral, Suspension):
        of_this_kind = [leaf for leaf in asked if is_a(leaf, kind)]
        if of_this_kind and all(is_a(leaf, (TaskCancelled, Retry, Deferral, Suspension)) for leaf in asked):
            return max(of_this_kind, key=lambda leaf: _asked_seconds(leaf) or 0.0)
    return exception


def is_a(exception: BaseException, kind: type[E] | tuple[type[E], ...]) -> TypeGuard[E]:
    """Matches as ``except`` does.  ``isinstance`` also asks the exception itself, whose answer may be an error."""
    return issubclass(type(exception), kind)


def _leaves(group: BaseException) -> Iterator[BaseException]:
    for exception in vars(BaseExceptionGroup)["exceptions"].__get__(group):  # a class of the project's may have its own
        if is_a(exception, BaseExceptionGroup):
            yield from _leaves(exception)
        else:
            yield exception


def _asked_seconds(exception: BaseException) -> float | None:
    """Returns the wait of a Retry, or of a subclass of the project's.  None: the backoff decides."""
    wait_seconds = getattr(exception, "wait_seconds", None)
    return None if wait_seconds is None else _number_of_seconds(wait_seconds)


def _number_of_seconds(value: Any) -> float:
    seconds = value.total_seconds() if isinstance(value, dt.timedelta) else float(value)
    if math.isnan(seconds):
        message = f"{value!r} is no number of seconds."
        raise ValueError(message)
    return max(0.0, seconds)
