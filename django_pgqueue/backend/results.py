"""Results: the ``TaskResult`` of django.tasks, made from the rows of a message."""

from __future__ import annotations

import datetime as dt
import json
import re
from contextlib import suppress
from dataclasses import fields
from typing import TYPE_CHECKING, Any

from django_pgqueue.backend.lazy_result import later
from django_pgqueue.backend.result import PgQueueTaskError, PgQueueTaskResult, of_values
from django_pgqueue.compat import (
    AnyTaskResult,
    TaskError,
    TaskResultDoesNotExist,
    TaskResultStatus,
)
from django_pgqueue.exceptions import InvalidMessage
from django_pgqueue.models.tables import Attempt, Message
from django_pgqueue.tasks import registry
from django_pgqueue.values import arguments
from django_pgqueue.values.redaction import quote
from django_pgqueue.values.times import as_django

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from django_pgqueue.backend.pgqueue import PgQueueBackend
    from django_pgqueue.functions import Received

ID = re.compile(r"[1-9][0-9]{0,18}")
MAX_ID = 2**63 - 1
CLOCK_ERROR = dt.timedelta(days=1)
"""An attempt may end before its message was enqueued, by a clock that was put back, and is still found."""
FAILURES = {Attempt.Status.FAILED, Attempt.Status.RETRIED}
NO_CLASS = "builtins.Exception"
DECODER = json.JSONDecoder()
"""What jsonb prints has no spaces around its value, for which ``json.loads`` looks: it takes twice as long."""


def id_of(result: AnyTaskResult | str | int) -> str | int:
    """Returns the id of a result, or the id that was given instead.  Raises InvalidMessage for anything else."""
    given: Any = arguments.id_of(result)
    if not isinstance(given, (str, int)):
        message = f"{quote(result)} is neither the result of an enqueued job nor its id."
        raise InvalidMessage(message)
    return given


def message_id_of(result_id: str | int) -> int | None:
    """Returns the message id of a result's id.  None: it cannot be one."""
    text = str(result_id)
    return int(text) if ID.fullmatch(text) and int(text) <= MAX_ID else None


def load(result_id: str, *, backend: PgQueueBackend) -> AnyTaskResult:
    """Returns the result with this id, from the queue or from the history."""
    message_id, database = message_id_of(result_id), backend.settings.database
    if message_id is None:
        message_text = f"{result_id!r} is not the id of a task result: ids are whole numbers, written as text."
        raise TaskResultDoesNotExist(message_text)
    # The queue first: a message leaves it in the same commit that writes its history, so it cannot be missed.
    message = Message.objects.using(database).filter(pk=message_id, task__isnull=False).first()
    attempts = _attempts(message_id, message, database)
    last = attempts[-1] if attempts else None
    if last is not None and last.final and last.task is not None:
        return _finished(last, attempts, backend)
    if message is None:
        message_text = (
            f"There is no task result with the id {result_id!r}: the transaction that enqueued it was rolled back or "
            "is still open, or the job ended more than HISTORY_DAYS ago."
        )
        raise TaskResultDoesNotExist(message_text)
    return _waiting(message, attempts, backend)


def _attempts(message_id: int, message: Message | None, database: str) -> list[Attempt]:
    """Returns the ended attempts.  ``message``: if it was in the queue a moment ago."""
    attempts = Attempt.objects.using(database).filter(message_id=message_id).order_by("id")
    if message is not None:  # each day, and each of its indexes, is a lock until the caller's transaction ends
        recent = list(attempts.filter(finished_at__gte=message.created_at - CLOCK_ERROR))
        has_first = any(attempt.attempt == 1 for attempt in recent)
        if has_first or message.attempt - (message.unlock_at is not None) < 1:
            return recent  # else an enqueue with its unique key has given it a later time
    return list(attempts)


def called(message: Received) -> tuple[list[Any], dict[str, Any]]:
    """Returns the arguments with which the task of a message is called."""
    content, _ = DECODER.raw_decode(message.content)
    args, kwargs = content["args"], content["kwargs"]
    if type(args) is not list or type(kwargs) is not dict:
        raise TypeError
    return args, kwargs


def running(
    message: Received,
    task: Any,
    *,
    call: tuple[list[Any], dict[str, Any]],
    backend: PgQueueBackend,
    started_at: dt.datetime,
    earlier: Callable[[], Sequence[Attempt]],
    errors: Sequence[TaskError],
) -> AnyTaskResult:
    """Returns the result of a message that is about to run, for its task, its context and the signals.

    The ``earlier`` attempts are looked up only when one of their fields is read: a task that was deferred a thousand
    times has a thousand of them.  ``errors``: the errors that the current attempt has had by then.
    """
    args, kwargs = call
    headers = None if message.headers is None else json.loads(message.headers)
    started = as_django(started_at)
    result: AnyTaskResult = of_values(
        task=_as_enqueued(task, message, message.max_attempts, headers, backend),
        id=str(message.id),
        status=TaskResultStatus.RUNNING,
        enqueued_at=as_django(message.created_at),
        started_at=started,
        last_attempted_at=started,
        finished_at=None,
        args=args,
        kwargs=kwargs,
        backend=backend.alias,
        errors=[],
        worker_ids=[message.worker],
        _return_value=None,
    )
    if message.attempt == 1:
        return result

    def of_the_task() -> dict[str, Any]:
        first = next(iter(earlier()), message)
        return {"max_attempts": _own_attempts(task, first.max_attempts, backend)}

    def of_the_result() -> dict[str, Any]:
        attempts = earlier()
        return {
            "errors": [*_errors(attempts), *errors],
            "worker_ids": [*_worker_ids(attempts), message.worker],
            "started_at": _first_start(attempts) or started,
        }

    # Each defer raises max_attempts, so the message may have been enqueued with another number.
    if message.max_attempts is not None and hasattr(task, "max_attempts"):
        object.__setattr__(result, "task", _replaced(result.task, {}))
        later(result.task, "max_attempts", look_up=of_the_task)
    later(result, "errors", "worker_ids", "started_at", look_up=of_the_result)
    return result


def earlier_attempts(message: Received, *, database: str) -> list[Attempt]:
    """Returns the attempts before the one that the caller holds, without large fields that no caller needs."""
    attempts = Attempt.objects.using(database).filter(message_id=message.id, attempt__lt=message.attempt)
    return list(attempts.defer("content", "headers", "result").order_by("id"))


def has_succeeded(message: Received, *, database: str) -> bool:
    """Whether the attempt that the caller held is recorded as succeeded."""
    succeeded = Attempt.objects.using(database).filter(message_id=message.id, status=Attempt.Status.SUCCEEDED)
    return succeeded.filter(attempt=message.attempt, worker=message.worker).exists()


def _waiting(message: Message, attempts: Sequence[Attempt], backend: PgQueueBackend) -> AnyTaskResult:
    held = message.worker is not None
    return PgQueueTaskResult(
        task=_as_enqueued(
            registry.find(message.task or ""),
            message,
            (attempts[0] if attempts else message).max_attempts,
            message.headers,
            backend,
        ),
        id=str(message.pk),
        status=TaskResultStatus.RUNNING if held else TaskResultStatus.READY,
        enqueued_at=message.created_at,
        started_at=_first_start(attempts) or message.locked_at,
        last_attempted_at=message.locked_at or _last_start(attempts),
        finished_at=None,
        **_call(message.content),
        backend=backend.alias,
        errors=_errors(attempts),
        worker_ids=[*_worker_ids(attempts), *([message.worker] if message.worker else [])],
    )


def _finished(last: Attempt, attempts: Sequence[Attempt], backend: PgQueueBackend) -> AnyTaskResult:
    succeeded = last.status == Attempt.Status.SUCCEEDED
    result: AnyTaskResult = PgQueueTaskResult(
        task=_as_enqueued(registry.find(last.task or ""), last, attempts[0].max_attempts, last.headers, backend),
        id=str(last.message_id),
        status=TaskResultStatus.SUCCESSFUL if succeeded else TaskResultStatus.FAILED,
        enqueued_at=last.created_at,
        started_at=_first_start(attempts),
        last_attempted_at=_last_start(attempts),
        finished_at=last.finished_at,
        **_call(last.content),
        backend=backend.alias,
        errors=_errors(attempts),
        worker_ids=_worker_ids(attempts),
    )
    object.__setattr__(result, "_return_value", last.result)
    return result


def _call(content: Any) -> dict[str, Any]:
    """Returns the arguments of a content, or no arguments if the row was written by hand in another form."""
    match content:
        case {"args": list(args), "kwargs": dict(kwargs)}:
            return {"args": args, "kwargs": kwargs}
        case _:
            return {"args": [], "kwargs": {}}


def _as_enqueued(
    task: Any,
    row: Received | Message | Attempt,
    max_attempts: int | None,
    headers: Any,
    backend: PgQueueBackend,
) -> Any:
    """Returns the registered task with the values with which it was enqueued.

    ``max_attempts`` is that of the first row: each defer raises it by one.
    """
    own = {"priority": row.priority, "queue_name": row.queue, "backend": backend.alias}
    changes: dict[str, Any] = own | _time_asked_for(headers)
    if hasattr(task, "max_attempts"):
        changes["max_attempts"] = _own_attempts(task, max_attempts, backend)
    changes = {name: value for name, value in changes.items() if getattr(task, name, None) != value}
    return _replaced(task, changes) if changes else task


def _time_asked_for(headers: Any) -> dict[str, Any]:
    """Returns when a message was to run, by its headers.  Headers of other programs may have another form."""
    if isinstance(headers, dict):
        with suppress(TypeError, ValueError, OverflowError):
            if "run_after" in headers:
                return {"run_after": dt.datetime.fromisoformat(headers["run_after"])}
            if "delay_us" in headers:
                return {"run_in": dt.timedelta(microseconds=headers["delay_us"])}
    return {}


def _own_attempts(task: Any, max_attempts: int | None, backend: PgQueueBackend) -> int | None:
    """Returns the task's own ``max_attempts`` if the message's number follows from it, else the message's number."""
    own: int | None = task.max_attempts
    return own if max_attempts == backend.max_attempts(task) else max_attempts


def _replaced(task: Any, changes: dict[str, Any]) -> Any:
    """``dataclasses.replace`` without validation: a task that was valid at its enqueue is run and shown, even if QUEUES
    has changed since.
    """
    replaced = object.__new__(type(task))
    for item in fields(task):
        object.__setattr__(replaced, item.name, changes.get(item.name, getattr(task, item.name)))
    return replaced


def _errors(attempts: Sequence[Attempt]) -> list[TaskError]:
    """Returns the errors.  One of a worker in another language may be a text without a class."""
    return [
        PgQueueTaskError(
            exception_class_path=attempt.error_class or NO_CLASS,
            traceback=attempt.traceback or attempt.error_message or "",
        )
        for attempt in attempts
        if attempt.error_class is not None or attempt.status in FAILURES
    ]


def _worker_ids(attempts: Sequence[Attempt]) -> list[str]:
    return [attempt.worker for attempt in attempts if attempt.worker is not None]


def _first_start(attempts: Sequence[Attempt]) -> dt.datetime | None:
    return next((attempt.started_at for attempt in attempts if attempt.started_at is not None), None)


def _last_start(attempts: Sequence[Attempt]) -> dt.datetime | None:
    return _first_start(attempts[::-1])
