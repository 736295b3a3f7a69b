"""The ``django.tasks`` backend: enqueue is one row, written inside the caller's own transaction."""

from __future__ import annotations

import datetime as dt
import json
import logging
import math
from typing import TYPE_CHECKING, Any, cast

from django.apps import apps
from django.core.checks import CheckMessage, Error
from django.db import connections

from django_pgqueue import functions, traces
from django_pgqueue.backend import signals
from django_pgqueue.compat import (
    AnyTask,
    AnyTaskResult,
    BaseTaskBackend,
    InvalidTask,
    TaskResultStatus,
    made_result,
    task_enqueued,
)
from django_pgqueue.conf import Options
from django_pgqueue.exceptions import DuplicateMessage, UnknownTask
from django_pgqueue.tasks import channel, registry, sensitive, unique, validation
from django_pgqueue.tasks.task import PgQueueTask
from django_pgqueue.values import content, names, redaction, times

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from django.core.checks import CheckMessage


class PgQueueBackend(BaseTaskBackend):
    """Keeps jobs in PostgreSQL::

        TASKS = {"default": {"BACKEND": "django_pgqueue.backend.PgQueueBackend", "QUEUES": ["default", "mail"]}}

    Django makes one for each thread, often before the apps are ready: it holds settings, and what it has seen to be
    valid.
    """

    task_class = PgQueueTask
    supports_defer = True
    supports_async_task = True
    supports_get_result = True
    supports_priority = True

    def __init__(self, alias: str, params: dict[str, Any]) -> None:
        super().__init__(alias, params)
        self.settings = Options.of(self.options)
        self._valid: dict[str, AnyTask] = {}

    def enqueue(  # type: ignore[override]
        self, task: AnyTask, args: Sequence[Any], kwargs: Mapping[str, Any]
    ) -> AnyTaskResult:
        self._validate(task)
        with redaction.redacted(sensitive.hides(task, self.settings)):
            call = content.normalize({"args": list(args), "kwargs": dict(kwargs)}, "the task's call")
            created, new = self._send(task, call)
        if not new:
            return self._holder(task, created, call)
        result = self._enqueued(task, created, call)
        if signals.is_heard(task_enqueued, logging.DEBUG):
            task_enqueued.send_robust(type(self), task_result=result)
        return result

    def _validate(self, task: AnyTask) -> None:
        """What a module declares is looked at once; what ``using()`` made, each time."""
        path = task.module_path
        if self._valid.get(path) is task:
            return
        self.validate_task(task)
        validate_path(task)
        if task.run_after is None and registry.declared(path) is task:
            self._valid[path] = task

    def _enqueued(self, task: AnyTask, created: functions.Created, call: dict[str, Any]) -> AnyTaskResult:
        return made_result(
            task=task,
            id=str(created.id),
            status=TaskResultStatus.READY,
            enqueued_at=times.as_django(created.created_at),
            started_at=None,
            last_attempted_at=None,
            finished_at=None,
            args=call["args"],
            kwargs=call["kwargs"],
            backend=self.alias,
            errors=[],
            worker_ids=[],
            _return_value=None,
        )

    def _send(self, task: AnyTask, call: dict[str, Any]) -> tuple[functions.Created, bool]:
        traced = self.settings.traces
        with traces.sending(traced=traced, queue=task.queue_name, task=task.module_path) as sending:
            created, new = self._create(task, call, sending)
            sending.sent(created.id)
        return created, new

    def _create(self, task: AnyTask, call: dict[str, Any], sending: traces.Sending) -> tuple[functions.Created, bool]:
        connection = connections[self.settings.database]
        text = content.dump(call, max_bytes=self.settings.max_content_bytes, what="the task's call")
        columns: dict[str, Any] = {
            "queue": task.queue_name,
            "task": task.module_path,
            "priority": int(task.priority),
            "max_attempts": self.max_attempts(task),
            "channel": channel.channel_of(task, call),
            **_when(task, sending),
        }
        after = getattr(task, "after", ())
        if after:
            policy = getattr(task, "after_policy", "finished")
            return functions.message_create_after(connection, after, text, policy=policy, **columns), True
        held = unique.columns_of(task, call)
        if not held:
            return functions.message_create(connection, text, **columns), True
        return functions.message_create_unique(connection, content=text, **held, **columns)

    def _holder(self, task: AnyTask, created: functions.Created, call: dict[str, Any]) -> AnyTaskResult:
        """The result of the message that holds the unique key; who may not read it gets what is known: its id."""
        message_id = created.id
        if getattr(task, "on_conflict", "keep") == "raise":
            message = (
                f"{task.module_path} is already enqueued: message {message_id} holds its unique key. "
                "Use on_conflict='keep' to get that message's result instead."
            )
            raise DuplicateMessage(message, existing_id=message_id)
        if not functions.may_read(connections[self.settings.database], "pgqueue_message"):
            return self._enqueued(task, created, call)
        return self.get_result(str(message_id))

    def get_result(self, result_id: str) -> AnyTaskResult:
        from django_pgqueue.backend import results  # noqa: PLC0415 -- imports models: not before the apps are ready

        return results.load(result_id, backend=self)

    def validate_task(self, task: AnyTask) -> None:
        _validate_types(task)
        super().validate_task(task)
        validation.validate(task)

    def check(self, **kwargs: Any) -> list[CheckMessage]:  # noqa: ARG002
        """What Django asks of every backend.  With the app installed, checks.py looks at the rest."""
        if apps.is_installed("django_pgqueue"):
            return []
        return [
            Error(
                f"TASKS[{self.alias!r}] is a PgQueueBackend, but 'django_pgqueue' is not in INSTALLED_APPS.",
                hint="Add it, and run manage.py migrate: the queue is made of tables.",
                id="pgqueue.E006",
            )
        ]

    def max_attempts(self, task: AnyTask) -> int | None:
        own: int | None = getattr(task, "max_attempts", None)
        return self.settings.max_attempts if own is None else own


def _validate_types(task: AnyTask) -> None:
    """What Django compares without looking: a TypeError or ValueError there is an InvalidTask here."""
    # The types of a Task are what the annotations say, not what a caller gives.
    priority, run_after, queue_name = cast("tuple[Any, Any, Any]", (task.priority, task.run_after, task.queue_name))
    if not isinstance(priority, (int, float)) or (isinstance(priority, float) and math.isnan(priority)):
        message = f"priority must be a whole number between -100 and 100, not {priority!r}."
        raise InvalidTask(message)
    if run_after is not None and not isinstance(run_after, dt.datetime):
        message = f"run_after must be a datetime, or a timedelta in using(), not {run_after!r}."
        raise InvalidTask(message)
    names.name_of("queue", queue_name, InvalidTask)


def validate_path(task: AnyTask) -> None:
    """What was declared inside of a class, or is bound to another name than its function's, would be lost in the queue:
    only now, because a decorator runs before the name is bound.
    """
    try:
        registry.declared(task.module_path)
    except UnknownTask as error:
        message = (
            f"{task.module_path!r} can not be enqueued, because no worker could find it there. Declare a task at the "
            "top level of its module and under the name of its function."
        )
        raise InvalidTask(message) from error


def _when(task: AnyTask, sending: traces.Sending) -> dict[str, Any]:
    """When the task may run, and in which trace, as arguments of ``message_create``.

    The headers keep what the caller said: ``dequeue_at`` is rounded to milliseconds and moves with each retry.
    """
    delay = getattr(task, "delay", None)
    columns: dict[str, Any] = {}
    said = None
    if delay is not None:
        columns = {"delay_ms": times.milliseconds(delay)}
        said = {"delay_us": delay // times.MICROSECOND}
    elif task.run_after is not None:
        columns = {"dequeue_at": times.not_before(task.run_after)}
        said = {"run_after": task.run_after.isoformat()}
    headers = sending.added_to(said)
    return columns if headers is None else columns | {"headers": json.dumps(headers)}
