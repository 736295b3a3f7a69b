"""One attempt of one task, from the message to its outcome."""

from __future__ import annotations

import asyncio
import copy
import json
import logging
import random
import time
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import TYPE_CHECKING, Any

from asgiref.sync import sync_to_async
from django.db import DatabaseError, InterfaceError, InternalError, OperationalError, connections, transaction

from django_pgqueue import functions
from django_pgqueue.backend import results, signals
from django_pgqueue.backend.lazy_result import is_known, know
from django_pgqueue.compat import TaskError, TaskResultStatus, normalize_json, task_finished, task_started
from django_pgqueue.consumer.forks import ending_here
from django_pgqueue.exceptions import (
    AttemptLost,
    InvalidContent,
    Retry as RetryAsked,
    TaskBeingImported,
    TaskCancelled,
    TaskTimeout,
)
from django_pgqueue.functions import Error
from django_pgqueue.logs import in_a_line
from django_pgqueue.tasks import registry, retry, sensitive
from django_pgqueue.tasks.context import Deferral, PgQueueContext
from django_pgqueue.values import content, redaction, times
from django_pgqueue.values.error import Unprintable, stand_in, to_log
from django_pgqueue.worker.run.connections import has_connected, roll_back_what_is_open
from django_pgqueue.worker.run.failure import Verdict, asked_for, is_a, was_cancelled
from django_pgqueue.worker.run.isolation import first_line, is_conflict, sees_one_snapshot
from django_pgqueue.worker.run.outcome import (
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

    from django.dispatch import Signal

    from django_pgqueue.backend.pgqueue import PgQueueBackend
    from django_pgqueue.functions import Received
    from django_pgqueue.models.tables import Attempt
    from django_pgqueue.tasks.context import Reports

logger = logging.getLogger("django_pgqueue.worker")

FEW_ATTEMPTS = 10
"""An async task that gets its context finds so many earlier attempts read already: reading them when it looks stops its
event loop for that moment."""


MAX_RESTARTS = 3
"""How often the transaction of an atomic task is begun anew, within one attempt, because it met another one."""
RESTART_SECONDS = 0.01

CONNECTION_PAUSES = (0.1, 0.3, 1.0, 2.0, None)
MAX_UNCONNECTED_SECONDS = 60.0
"""Until an atomic task whose transaction got no connection is tried again, at most."""


class Execution:
    """Runs a message's task once and says how it ended.

    Nothing is written: recording the outcome is another's work, except for an atomic task, whose completion is part of
    its own transaction.  Whatever the task raises is an outcome, except KeyboardInterrupt.  The signals are those of
    django.tasks.
    """

    __slots__ = (
        "_result",
        "args",
        "backend",
        "clock",
        "earlier",
        "errors",
        "finished_at",
        "is_late",
        "is_lost",
        "is_over",
        "kwargs",
        "message",
        "reports",
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
        self.args: list[Any] | None = None
        self.kwargs: dict[str, Any] = {}
        self._result: Any = None
        self.earlier: list[Attempt] | None = None
        self.errors: list[TaskError] = []
        self.is_over = False
        """Its outcome is known: nothing that happens from now on can change it."""
        self.is_late = False
        """Its time is up."""
        self.is_lost = False
        self.session: Any = None
        """The driver's connection that an atomic task's transaction is in."""

    def run(self) -> Ended:
        hide = sensitive.hides_message(self.message.task, self.backend.settings)
        if hide == redaction.is_redacting():
            return self._run()
        with redaction.redacted(hide):
            return self._run()

    def _run(self) -> Ended:
        try:
            self._begin()
            self._send(task_started)
            if self.is_over:  # its time was up before the task began: nobody waits for this end
                return self._ended(Failed(Error.of("Its time was up before it began.")))
            atomic = getattr(self.task, "atomic", False)
            outcome = self._run_atomically() if atomic else self._succeeded(self._call())
            self._send_if_finished()
            return self._ended(outcome)
        except BaseException as exception:  # SystemExit too is the failure of a task
            if signals.is_ctrl_c(exception):
                raise
            outcome = self._not_succeeded(exception)
            self._send_if_finished(outcome)
            return self._ended(outcome, exception)

    async def arun(self) -> Ended:
        with redaction.redacted(sensitive.hides_message(self.message.task, self.backend.settings)):
            return await self._arun()

    async def _arun(self) -> Ended:
        try:
            self._begin()
            if self.task.takes_context and 1 < self.message.attempt <= FEW_ATTEMPTS:
                await sync_to_async(know)(self.result)
            await self._asend(task_started)
            if self.is_over:
                return self._ended(Failed(Error.of("Its time was up before it began.")))
            outcome = self._succeeded(await self._acall())
            await self._asend_if_finished()
            return self._ended(outcome)
        except BaseException as exception:
            if signals.is_ctrl_c(exception):
                raise
            outcome = self._not_succeeded(exception)
            await self._asend_if_finished(outcome)
            return self._ended(outcome, exception)

    def timed_out(self, cut: Callable[[], None] | None = None) -> Ended:
        """The end of an attempt whose thread goes on: made on a copy, because the thread still has this one.  ``cut``
        makes an error in that thread, which must not get into the copy.
        """
        mine = copy.copy(self)
        mine.is_over, self.is_over = False, True
        return mine._time_out(cut)  # noqa: SLF001

    def given_up(self) -> Ended:
        """The end of an attempt that cannot go on because of others in its process: it does not count."""
        mine = copy.copy(self)
        self.is_over = True
        mine.finished_at = self.clock()
        return mine._ended(Deferred(0.0, None))  # noqa: SLF001

    def _time_out(self, cut: Callable[[], None] | None) -> Ended:
        try:
            if self.args is None:  # the time was up before anything began
                self._begin()
            else:
                self._result = copy.copy(self.result)
                self._set(errors=list(self.result.errors))
            if cut is not None:
                cut()
            raise self._timeout(registry.timeout_seconds(self.message.task or ""))  # noqa: TRY301 -- it gets a traceback
        except Exception as exception:  # noqa: BLE001
            outcome = self._not_succeeded(exception)
            self._send_if_finished(outcome)
            return self._ended(outcome, exception)

    def cancelled_before_it_began(self) -> Ended:
        """Nothing of it runs, and so there are no signals."""
        return self._ended(Cancelled(Error.of(TaskCancelled("Somebody asked the task to stop before it began."))))

    def broken(self, error: BaseException) -> Ended:
        """The end when not the task, but something around it raised: an attempt like others that failed.  It asks
        nobody of the project, and so it cannot fail itself.
        """
        self.finished_at = self.clock()
        said, attempt, max_attempts = Error.of(error), self.message.attempt, self.message.max_attempts
        if max_attempts is None or attempt >= max_attempts:
            return self._ended(Failed(said))
        return self._ended(Retry(said, retry.DEFAULT.seconds(attempt=attempt)))

    def _begin(self) -> None:
        self.task = registry.find_patiently(self.message.task or "")
        try:
            args, self.kwargs = results.called(self.message)
            if self.message.headers is not None:  # what they say may be nonsense, too
                self._result = self._made_result(args)
        except (KeyError, TypeError, AttributeError, json.JSONDecodeError) as error:
            said = "what it is" if redaction.is_redacting() else self.message.content[:80]
            message = (
                f"The content of message {self.message.id} is not the call of a task: it must be "
                f'{{"args": [...], "kwargs": {{...}}}}, not {said}.'
            )
            raise InvalidContent(message) from error
        self.args = args

    @property
    def result(self) -> Any:
        """The ``TaskResult``, made when somebody is going to see it: few jobs have anybody who does.  None: the message
        is not the call of a task.
        """
        if self._result is None and self.args is not None:
            self._result = self._made_result(self.args)
        return self._result

    def _made_result(self, args: list[Any]) -> Any:
        return results.running(
            self.message,
            self.task,
            call=(args, self.kwargs),
            backend=self.backend,
            started_at=self.started_at,
            earlier=self._earlier,
            errors=self.errors,
        )

    def _earlier(self) -> list[Attempt]:
        if self.earlier is None:
            try:
                asyncio.get_running_loop()
            except RuntimeError:
                self.earlier = self._look_back()
            else:  # where Django's ORM is not spoken
                with ThreadPoolExecutor(1) as elsewhere:
                    self.earlier = elsewhere.submit(self._look_back_and_leave).result()
        return self.earlier

    def _look_back(self) -> list[Attempt]:
        try:
            return results.earlier_attempts(self.message, database=self.backend.settings.database)
        except (DatabaseError, InterfaceError):  # what happened before is worth knowing, not worth failing for
            logger.warning("The earlier attempts of message id=%s can not be read.", self.message.id, exc_info=True)
            return []

    def _look_back_and_leave(self) -> list[Attempt]:
        try:
            return self._look_back()
        finally:
            connections.close_all()

    def _call(self) -> Any:
        # task.call asks each time what kind of function it is; here that is known.
        call = self.task.call if registry.is_async(self.message.task or "") else self.task.func
        with ending_here:
            return call(*self._arguments(), **self.kwargs)

    async def _acall(self) -> Any:
        with ending_here:
            return await self._acall_within(registry.timeout_seconds(self.message.task or ""))

    async def _acall_within(self, seconds: float | None) -> Any:
        if seconds is None:
            return await self.task.func(*self._arguments(), **self.kwargs)
        try:
            async with asyncio.timeout(seconds) as limit:
                return await self.task.func(*self._arguments(), **self.kwargs)
        except (TimeoutError, DatabaseError) as error:
            # What its statement raises when it is cancelled comes before, or in the place of, the cancellation.
            if limit.expired() or (self.is_late and isinstance(error, DatabaseError)):
                raise self._timeout(seconds) from error
            raise

    def _timeout(self, seconds: float | None) -> TaskTimeout:
        return TaskTimeout(f"The task {self.message.task} took longer than its timeout of {seconds:g} seconds.")

    def _arguments(self) -> list[Any]:
        args = self.args or []
        if not self.task.takes_context:
            return args
        context = PgQueueContext(
            task_result=self.result,
            message=self.message,
            reports=self.reports,
            max_bytes=self.backend.settings.max_content_bytes,
        )
        return [context, *args]

    # How it ended

    def _succeeded(self, value: Any) -> Outcome:
        normal, text = self._returned(value)
        self.finished_at = self.clock()
        self._succeed(normal)
        return Succeeded(text)

    def _run_atomically(self) -> Outcome:
        """The task, its writes, its enqueues and its completion are one transaction: all happens once, or nothing."""
        restarts = 0
        while True:
            try:
                return self._run_in_a_transaction()
            except Exception as exception:
                if restarts == MAX_RESTARTS or self.is_over or not is_conflict(exception):
                    raise
                restarts += 1
                logger.warning(
                    "restarted id=%s task=%s attempt=%s restarts=%s: its transaction was rolled back: %s",
                    self.message.id, self.message.task, self.message.attempt, restarts, first_line(exception),
                )  # fmt: skip
            if self.reports.is_cancelled(self.message):
                message = "Somebody asked the task to stop, and its transaction was rolled back."
                raise TaskCancelled(message)
            time.sleep(random.uniform(0, RESTART_SECONDS * 2**restarts))  # noqa: S311 -- those that met part
            self.args, self.kwargs = results.called(self.message)  # the task may have changed them

    def _run_in_a_transaction(self) -> Outcome:
        database = self.backend.settings.database
        connection = connections[database]
        completed = False
        try:
            self.message.kept = self._sees_one_snapshot(connection)
            with transaction.atomic(using=database):
                self.session = connection.connection
                if self.message.kept:
                    self._keep(connection)
                normal, text = self._returned(self._call())
                self._complete(connection, text)
                completed = True
        except Exception:
            if not completed or not self._is_committed():
                raise
            logger.exception("What message id=%s left for on_commit() failed; the message is done.", self.message.id)
        finally:
            self.message.kept = False
        self._succeed(normal)
        return Committed()

    def _sees_one_snapshot(self, connection: Any) -> bool:
        """Looks for a connection for some seconds: a worker that cannot get one shall not hurry through its queue and
        put back one message after the other.
        """
        for pause_seconds in CONNECTION_PAUSES:
            try:
                return sees_one_snapshot(connection)
            except (OperationalError, InterfaceError) as error:
                if pause_seconds is None or self.is_over:
                    logger.warning(
                        "not begun id=%s task=%s attempt=%s: its transaction got no connection: %s",
                        self.message.id, in_a_line(self.message.task), self.message.attempt, first_line(error),
                    )  # fmt: skip
                    wait_seconds = retry.DEFAULT.seconds(attempt=self.message.attempt)
                    raise Deferral(min(wait_seconds, MAX_UNCONNECTED_SECONDS), None) from error
            time.sleep(pause_seconds)
        raise AssertionError

    def _keep(self, connection: Any) -> None:
        if not functions.message_keep(connection, self.message):
            raise self._lost()

    def _is_committed(self) -> bool:
        try:
            return results.has_succeeded(self.message, database=self.backend.settings.database)
        except (DatabaseError, InterfaceError):
            return False

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
            raise self._lost()

    def _lost(self) -> AttemptLost:
        self.is_lost = True
        return AttemptLost(f"Message {self.message.id}: attempt {self.message.attempt} was lost, and is rolled back.")

    def _returned(self, value: Any) -> tuple[Any, str | None]:
        if value is None:
            return None, None
        normal = _normal(value)
        limit = self.backend.settings.max_content_bytes
        return normal, content.dump(normal, max_bytes=limit, what="the task's return value")

    def _not_succeeded(self, exception: BaseException) -> Outcome:
        self.finished_at = self.clock()
        exception, state = asked_for(exception), None
        if is_a(exception, (Deferral, RetryAsked)):
            try:
                state = self._state(getattr(exception, "state", None))
            except InvalidContent as invalid:
                exception = invalid
        if is_a(exception, Deferral):
            self._set(status=TaskResultStatus.READY)
            return Deferred(exception.wait_seconds, state)
        error = Error.of(exception)
        if is_a(exception, TaskBeingImported):  # no fault of the task: as often as for who asks for it
            return Retry(error, retry.DEFAULT.seconds(attempt=self.message.attempt), None, retry.ASKED_ATTEMPTS)
        if self.result is None:
            cancelled = was_cancelled(exception, self.message, self.reports)
            return Cancelled(error) if cancelled else Failed(error)
        self._add(TaskError(exception_class_path=error.error_class or "", traceback=error.traceback or error.message))
        if self._went_down_with_its_connection(exception):
            outcome: Outcome = Abandoned(error)
        else:
            verdict = Verdict(
                self.message, self.task, self.result, self.reports, self._earlier, self.backend.max_attempts(self.task)
            )
            outcome = verdict.on(exception, error, state)
        if isinstance(outcome, (Failed, Cancelled)):
            self._finish(TaskResultStatus.FAILED)
        else:
            self._set(status=TaskResultStatus.READY)
        return outcome

    def _add(self, error: TaskError) -> None:
        if is_known(self.result):
            self.result.errors.append(error)
        else:
            self.errors.append(error)

    def _went_down_with_its_connection(self, exception: BaseException) -> bool:
        if self.is_lost:
            return True
        if not getattr(self.task, "atomic", False) or not is_a(exception, (OperationalError, InterfaceError)):
            return False
        # Not Django's connection: it has opened another session by now.
        return self.session is None or bool(self.session.closed)

    def _state(self, state: Any) -> str | None:
        normal = content.normalize(state, "state")
        limit = self.backend.settings.max_content_bytes
        return None if normal is None else content.dump(normal, max_bytes=limit, what="state")

    def _succeed(self, value: Any) -> None:
        if self._result is not None or signals.is_heard(task_finished):
            self._finish(TaskResultStatus.SUCCESSFUL, _return_value=value)

    def _finish(self, status: TaskResultStatus, **changes: Any) -> None:
        self._set(status=status, finished_at=times.as_django(self.finished_at), **changes)

    def _set(self, **changes: Any) -> None:
        for name, value in changes.items():
            object.__setattr__(self.result, name, value)

    def _ended(self, outcome: Outcome, exception: BaseException | None = None) -> Ended:
        goes_on = isinstance(outcome, (Retry, Deferred, Abandoned))
        tell = partial(self._tell_of_the_end, exception) if goes_on and exception is not None else None
        return Ended(self.message, outcome, self.started_at, self.finished_at, tell)

    # Signals

    def _send_if_finished(self, outcome: Outcome | None = None) -> None:
        """Inside the except block: receivers find the exception of a failure in ``sys.exc_info()``."""
        if self._ends_here() and self._is_seen_finished():
            self._send(task_finished, _shown(outcome))

    async def _asend_if_finished(self, outcome: Outcome | None = None) -> None:
        if self._ends_here() and self._is_seen_finished():
            await self._asend(task_finished, _shown(outcome))

    def _ends_here(self) -> bool:
        """False: its time was up before, and that has been told."""
        was_over, self.is_over = self.is_over, True
        return not was_over

    def _is_seen_finished(self) -> bool:
        return self._result is not None and bool(self._result.is_finished)

    def _tell_of_the_end(self, exception: BaseException) -> None:
        """The job should have gone on, and did not: what was recorded is its end."""
        self._finish(TaskResultStatus.FAILED)
        if is_a(asked_for(exception), Deferral):
            self._send(task_finished)
            return
        try:
            raise to_log(exception)  # noqa: TRY301 -- for sys.exc_info(), as it was when the attempt ended
        except BaseException:  # noqa: BLE001
            self._send(task_finished)

    def _send(self, signal: Signal, shown: Unprintable | None = None) -> None:
        """``shown``: what receivers find in ``sys.exc_info()`` instead of the exception of the task."""
        if shown is not None:
            try:
                raise shown
            except Unprintable:
                shown.__context__ = None  # which cannot be printed either
                self._send(signal)
        elif signals.has_receivers(signal):
            signals.send(signal, self.result, backend=self.backend)
            self._clean_up_after_receivers(signal)
        elif signals.is_logged(logging.ERROR if self._has_failed() else logging.INFO):
            signals.send(signal, self.result, backend=self.backend)

    def _has_failed(self) -> bool:
        return self._result is not None and self._result.status == TaskResultStatus.FAILED

    async def _asend(self, signal: Signal, shown: Unprintable | None = None) -> None:
        """A receiver that is no coroutine may use the ORM, which is not spoken in an event loop: it gets the thread,
        and the connection, that the database work of all async tasks goes through.
        """
        if signals.has_receivers(signal):
            await sync_to_async(self._send)(signal, shown)
        else:
            self._send(signal, shown)

    def _clean_up_after_receivers(self, signal: Signal) -> None:
        """What a receiver began and did not end, the task would write into, and lose."""
        if has_connected():
            roll_back_what_is_open(self.message, f"A receiver of {signals.NAMES[signal]}")


def _shown(outcome: Outcome | None) -> Unprintable | None:
    error: Error | None = getattr(outcome, "error", None)
    return None if error is None or error.printable else stand_in(error)


def _normal(value: Any) -> Any:
    try:
        return content.normalize(value, "the task's return value")
    except InvalidContent:
        normalize_json(value)  # what Django refuses is recorded as Django's own error
        raise
