"""From the rows of a message to the ``TaskResult`` that django.tasks speaks of."""

from __future__ import annotations

import datetime as dt
import json
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from django_pgqueue import registry
from django_pgqueue.compat import (
    AnyTaskResult,
    TaskError,
    TaskResult,
    TaskResultDoesNotExist,
    TaskResultStatus,
)
from django_pgqueue.models import Attempt, Message

if TYPE_CHECKING:
    from collections.abc import Sequence

    from django_pgqueue.functions import Received

LARGEST_ID = 2**63 - 1


def load(result_id: str, *, alias: str, database: str) -> AnyTaskResult:
    """The result with this id, from wherever its message is now."""
    message_id = _message_id(result_id)
    # The message first: what has left it by then is in the history, in the same commit.
    message = Message.objects.using(database).filter(pk=message_id, task__isnull=False).first()
    attempts = list(Attempt.objects.using(database).filter(message_id=message_id).order_by("id"))
    last = attempts[-1] if attempts else None
    if last is not None and last.final and last.task is not None:
        return _finished(last, attempts, alias)
    if message is None:
        message_text = f"There is no task result with the id {result_id!r}. Finished ones are kept for HISTORY_DAYS."
        raise TaskResultDoesNotExist(message_text)
    return _waiting(message, attempts, alias)


def running(
    message: Received, task: Any, *, alias: str, started_at: dt.datetime, earlier: Sequence[Attempt]
) -> AnyTaskResult:
    """The result of a message that is about to run, as its task, its context and the signals see it."""
    content = json.loads(message.content)
    headers = None if message.headers is None else json.loads(message.headers)
    return TaskResult(
        task=_as_enqueued(task, message.priority, message.queue, headers, alias),
        id=str(message.id),
        status=TaskResultStatus.RUNNING,
        enqueued_at=message.created_at,
        started_at=_first_start(earlier) or started_at,
        last_attempted_at=started_at,
        finished_at=None,
        args=content["args"],
        kwargs=content["kwargs"],
        backend=alias,
        errors=_errors(earlier),
        worker_ids=[*_worker_ids(earlier), message.worker],
    )


def earlier_attempts(message_id: int, *, database: str) -> list[Attempt]:
    return list(Attempt.objects.using(database).filter(message_id=message_id).order_by("id"))


def _message_id(result_id: str) -> int:
    text = str(result_id)
    if not (text.isascii() and text.isdigit() and text == str(int(text)) and int(text) <= LARGEST_ID):
        message = f"{result_id!r} is not the id of a task result: ids are whole numbers, written as text."
        raise TaskResultDoesNotExist(message)
    return int(text)


def _waiting(message: Message, attempts: Sequence[Attempt], alias: str) -> AnyTaskResult:
    held = message.worker is not None
    return TaskResult(
        task=_as_enqueued(registry.find(message.task or ""), message.priority, message.queue, message.headers, alias),
        id=str(message.pk),
        status=TaskResultStatus.RUNNING if held else TaskResultStatus.READY,
        enqueued_at=message.created_at,
        started_at=_first_start(attempts) or message.locked_at,
        last_attempted_at=message.locked_at or _last_start(attempts),
        finished_at=None,
        args=message.content["args"],
        kwargs=message.content["kwargs"],
        backend=alias,
        errors=_errors(attempts),
        worker_ids=[*_worker_ids(attempts), *([message.worker] if message.worker else [])],
    )


def _finished(last: Attempt, attempts: Sequence[Attempt], alias: str) -> AnyTaskResult:
    succeeded = last.status == Attempt.Status.SUCCEEDED
    content = last.content or {}
    result: AnyTaskResult = TaskResult(
        task=_as_enqueued(registry.find(last.task or ""), last.priority, last.queue, last.headers, alias),
        id=str(last.message_id),
        status=TaskResultStatus.SUCCESSFUL if succeeded else TaskResultStatus.FAILED,
        enqueued_at=last.created_at,
        started_at=_first_start(attempts),
        last_attempted_at=_last_start(attempts),
        finished_at=last.finished_at,
        args=content.get("args", []),
        kwargs=content.get("kwargs", {}),
        backend=alias,
        errors=_errors(attempts),
        worker_ids=_worker_ids(attempts),
    )
    object.__setattr__(result, "_return_value", last.result)
    return result


def _as_enqueued(task: Any, priority: int, queue: str, headers: dict[str, Any] | None, alias: str) -> Any:
    """The registered task with the values that it was enqueued with."""
    changes: dict[str, Any] = {"priority": priority, "queue_name": queue, "backend": alias}
    if headers and "run_after" in headers:
        changes["run_after"] = dt.datetime.fromisoformat(headers["run_after"])
    if headers and "delay_us" in headers:
        changes["delay"] = dt.timedelta(microseconds=headers["delay_us"])
    changes = {name: value for name, value in changes.items() if getattr(task, name, None) != value}
    return replace(task, **changes) if changes else task


def _errors(attempts: Sequence[Attempt]) -> list[TaskError]:
    return [
        TaskError(exception_class_path=attempt.error_class, traceback=attempt.traceback or attempt.error_message or "")
        for attempt in attempts
        if attempt.error_class is not None
    ]


def _worker_ids(attempts: Sequence[Attempt]) -> list[str]:
    return [attempt.worker for attempt in attempts if attempt.worker is not None]


def _first_start(attempts: Sequence[Attempt]) -> dt.datetime | None:
    return next((attempt.started_at for attempt in attempts if attempt.started_at is not None), None)


def _last_start(attempts: Sequence[Attempt]) -> dt.datetime | None:
    return _first_start(attempts[::-1])
