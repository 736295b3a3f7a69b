"""One attempt of one task, from the message to its outcome."""

from __future__ import annotations

import json
import logging
from typing import TYPE_CHECKING, Any

from django.db import DatabaseError

from django_pgqueue import content, registry, results, retry
from django_pgqueue.compat import (
    AnyTaskResult,
    TaskContext,
    TaskError,
    TaskResultStatus,
    task_finished,
    task_started,
)
from django_pgqueue.exceptions import InvalidContent, UnknownTask
from django_pgqueue.functions import Error
from django_pgqueue.worker.outcome import Ended, Failed, Outcome, Retry, Succeeded

if TYPE_CHECKING:
    import datetime as dt
    from collections.abc import Callable

    from django_pgqueue.backend import PgQueueBackend
    from django_pgqueue.functions import Received

logger = logging.getLogger("django_pgqueue.worker")


class Execution:
    """Runs a message's task once and says how it ended.  Nothing is written: recording the outcome is another's work.

    Whatever the task raises is an outcome, except KeyboardInterrupt.  The signals are those of django.tasks.
    """

    __slots__ = ("backend", "clock", "finished_at", "message", "result", "started_at", "task")

    def __init__(self, message: Received, *, backend: PgQueueBackend, clock: Callable[[], dt.datetime]) -> None:
        self.message = message
        self.backend = backend
        self.clock = clock
        self.started_at = clock()
        self.task: Any = None
        self.result: AnyTaskResult

    def run(self) -> Ended:
        try:
            self._start()
            # task.call and task.acall ask each time what kind of function it is; here that is known.
            call = self.task.call if registry.is_async(self.message.task or "") else self.task.func
            value = call(*self._arguments(), **self.result.kwargs)
            return self._ended(self._succeeded(value))
        except KeyboardInterrupt:
            raise
        except BaseException as exception:  # noqa: BLE001 -- SystemExit too is the failure of a task
            return self._ended(self._failed(exception))

    async def arun(self) -> Ended:
        try:
            self._start()
            value = await self.task.func(*self._arguments(), **self.result.kwargs)
            return self._ended(self._succeeded(value))
        except KeyboardInterrupt:
            raise
        except BaseException as exception:  # noqa: BLE001
            return self._ended(self._failed(exception))

    def _start(self) -> None:
        self.task = registry.find(self.message.task or "")
        earlier = []
        if self.message.attempt > 1:
            try:
                earlier = results.earlier_attempts(self.message.id, database=self.backend.settings.database)
            except DatabaseError:  # what happened before is worth knowing, not worth failing for
                logger.warning("The earlier attempts of message id=%s can not be read.", self.message.id, exc_info=True)
        self.result = self._result(earlier)
        task_started.send_robust(type(self.backend), task_result=self.result)

    def _result(self, earlier: list[Any]) -> AnyTaskResult:
        try:
            return results.running(
                self.message, self.task, alias=self.backend.alias, started_at=self.started_at, earlier=earlier
            )
        except (KeyError, TypeError, AttributeError, json.JSONDecodeError) as error:
            message = (
                f"The content of message {self.message.id} is not the call of a task: it must be "
                f'{{"args": [...], "kwargs": {{...}}}}, not {self.message.content[:80]}.'
            )
            raise InvalidContent(message) from error

    def _arguments(self) -> list[Any]:
        if self.task.takes_context:
            return [TaskContext(task_result=self.result), *self.result.args]
        return self.result.args

    def _succeeded(self, value: Any) -> Outcome:
        normal = content.normalize(value, "the task's return value")
        limit = self.backend.settings.max_content_bytes
        text = None if normal is None else content.dump(normal, max_bytes=limit, what="the task's return value")
        self._finish(TaskResultStatus.SUCCESSFUL, _return_value=normal)
        return Succeeded(text)

    def _failed(self, exception: BaseException) -> Outcome:
        """Called inside the except block: receivers of the signal find the exception in ``sys.exc_info()``."""
        error = Error.of(exception)
        if self.task is None or not hasattr(self, "result"):
            self.finished_at = self.clock()
            return Failed(error)
        self.result.errors.append(
            TaskError(exception_class_path=error.error_class or "", traceback=error.traceback or error.message)
        )
        wait_seconds = self._wait_seconds(exception)
        if wait_seconds is None:
            self._finish(TaskResultStatus.FAILED)
            return Failed(error)
        self.finished_at = self.clock()
        object.__setattr__(self.result, "status", TaskResultStatus.READY)
        return Retry(error, wait_seconds)

    def _wait_seconds(self, exception: BaseException) -> float | None:
        last = self.message.max_attempts
        if last is None or self.message.attempt >= last or isinstance(exception, UnknownTask):
            return None
        backoff = getattr(self.task, "backoff", None) or retry.DEFAULT
        try:
            wait_seconds = backoff(exception, self.result)
            return None if wait_seconds is None else max(0.0, float(wait_seconds))
        except Exception:
            logger.exception("The backoff of task=%s failed; the default is used.", self.message.task)
            return retry.DEFAULT.seconds(attempt=self.message.attempt)

    def _finish(self, status: TaskResultStatus, **changes: Any) -> None:
        self.finished_at = self.clock()
        for name, value in {"status": status, "finished_at": self.finished_at, **changes}.items():
            object.__setattr__(self.result, name, value)
        task_finished.send_robust(type(self.backend), task_result=self.result)

    def _ended(self, outcome: Outcome) -> Ended:
        return Ended(self.message, outcome, self.started_at, self.finished_at)
