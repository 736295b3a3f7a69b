"""The ``django.tasks`` backend: an enqueue writes one row inside the caller's own transaction."""

from __future__ import annotations

import datetime as dt
import logging
from inspect import isfunction
from typing import TYPE_CHECKING, Any, cast

from django.apps import apps
from django.conf import settings
from django.core.checks import CheckMessage, Error
from django.db import connections
from django.utils import timezone

from django_pgqueue import functions, traces
from django_pgqueue.backend import signals
from django_pgqueue.backend.result import of_values
from django_pgqueue.compat import (
    AnyTask,
    AnyTaskResult,
    BaseTaskBackend,
    InvalidTask,
    TaskResultStatus,
    task_enqueued,
)
from django_pgqueue.conf import Options
from django_pgqueue.exceptions import DuplicateMessage, UnknownTask
from django_pgqueue.tasks import call as task_call, registry, sensitive, validation
from django_pgqueue.tasks.task import PgQueueTask
from django_pgqueue.values import expiry, names, redaction, times
from django_pgqueue.values.limits import MAX_PRIORITY, MIN_PRIORITY

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence


class PgQueueBackend(BaseTaskBackend):
    """Backend that keeps jobs in PostgreSQL::

        TASKS = {"default": {"BACKEND": "django_pgqueue.backend.PgQueueBackend", "QUEUES": ["default", "mail"]}}

    Django makes one for each thread, often before the apps are ready.  So it holds only settings and the tasks that it
    has validated.
    """

    task_class = PgQueueTask
    supports_defer = True
    supports_async_task = True
    supports_get_result = True
    supports_priority = True

    def __init__(self, alias: str, params: dict[str, Any]) -> None:
        # Of other QUEUES a check tells: here they would stop the modules with tasks, and so the check.
        super().__init__(alias, params if names.are_names(params.get("QUEUES", [])) else {**params, "QUEUES": []})
        self.settings = Options.of(self.options)
        self._valid: dict[str, AnyTask] = {}

    def enqueue(  # type: ignore[override]
        self, task: AnyTask, args: Sequence[Any], kwargs: Mapping[str, Any]
    ) -> AnyTaskResult:
        enqueued, is_new = self._put(task, args, kwargs, traced=self.settings.traces)
        if is_new and signals.is_heard(task_enqueued, logging.DEBUG):
            task_enqueued.send_robust(type(self), task_result=enqueued)
        return enqueued

    def rehearse(self, task: AnyTask, args: Sequence[Any], kwargs: Mapping[str, Any]) -> None:
        """Enqueues a message in a transaction that the caller rolls back: no signal, log or span tells of it."""
        self._put(task, args, kwargs, traced=False)

    def _put(
        self, task: AnyTask, args: Sequence[Any], kwargs: Mapping[str, Any], *, traced: bool
    ) -> tuple[AnyTaskResult, bool]:
        """Returns the result, and whether it is new."""
        self._validate(task)
        with redaction.redacted(sensitive.hides(task, self.settings)):
            arguments, created = self._send(task, args, kwargs, traced=traced)
        if not created.is_new:
            return self._holder(task, created, arguments), False
        return self._enqueued(task, created, arguments), True

    def _validate(self, task: AnyTask) -> None:
        """Validates a declared task once, and a copy that ``using()`` made each time."""
        path = task.module_path
        if self._valid.get(path) is task:
            return
        self.validate_task(task)
        validate_path(task)
        if task.run_after is None and registry.declared(path) is task:
            self._valid[path] = task

    def _enqueued(self, task: AnyTask, created: functions.Created, arguments: dict[str, Any]) -> AnyTaskResult:
        return of_values(
            task=task,
            id=str(created.id),
            status=TaskResultStatus.READY,
            enqueued_at=times.as_django(created.created_at),
            started_at=None,
            last_attempted_at=None,
            finished_at=None,
            args=arguments["args"],
            kwargs=arguments["kwargs"],
            backend=self.alias,
            errors=[],
            worker_ids=[],
            _return_value=None,
        )

    def _send(
        self, task: AnyTask, args: Sequence[Any], kwargs: Mapping[str, Any], *, traced: bool
    ) -> tuple[dict[str, Any], functions.Created]:
        with traces.sending(traced=traced, queue=task.queue_name, task=task.module_path) as sending:
            call = task_call.prepare(task, args, kwargs, self.settings, add_headers=sending.added_to)
            with functions.explained(self.settings.database):
                created = functions.enqueue(connections[self.settings.database], call.message)
            sending.sent(created.id)
        return call.arguments, created

    def _holder(self, task: AnyTask, created: functions.Created, arguments: dict[str, Any]) -> AnyTaskResult:
        """Returns the result of the message that holds the unique key: only its id if the caller may not read it."""
        message_id = created.id
        if getattr(task, "on_conflict", "keep") == "raise":
            message = (
                f"{task.module_path} is already enqueued: message {message_id} holds its unique key. "
                "Use on_conflict='keep' to get that message's result instead."
            )
            raise DuplicateMessage(message, existing_id=message_id)
        if not functions.may_read(connections[self.settings.database], "pgqueue_message"):
            return self._enqueued(task, created, arguments)
        return self.get_result(str(message_id))

    def get_result(self, result_id: str) -> AnyTaskResult:
        from django_pgqueue.backend import results  # noqa: PLC0415 -- imports models: not before the apps are ready

        with functions.explained(self.settings.database):
            return results.load(result_id, backend=self)

    def validate_task(self, task: AnyTask) -> None:
        _validate_function(task.func)
        _validate_types(task)
        self._validate_queue(task)
        super().validate_task(task)
        validation.validate(task)

    def _validate_queue(self, task: AnyTask) -> None:
        """Raises InvalidTask, as Django does, with the names that are valid."""
        if self.queues and task.queue_name not in self.queues:
            message = (
                f"Queue {task.queue_name!r} is not valid for backend {self.alias!r}. It has "
                f"{', '.join(map(repr, sorted(self.queues)))}: correct the name, or add it to "
                f"TASKS[{self.alias!r}]['QUEUES'] and give it a worker."
            )
            raise InvalidTask(message)

    def check(self, **kwargs: Any) -> list[CheckMessage]:  # noqa: ARG002
        """Returns the errors of Django's own check of backends.  If the app is installed, checks.py checks the rest."""
        if apps.is_installed("django_pgqueue"):
            return []
        return [
            Error(
                f"TASKS[{self.alias!r}] is a PgQueueBackend, but 'django_pgqueue' is not in INSTALLED_APPS.",
                hint="Add it, and run manage.py migrate to create the tables of the queue.",
                id="pgqueue.E006",
            )
        ]

    def max_attempts(self, task: AnyTask) -> int | None:
        return task_call.max_attempts(task, self.settings)

    def headers(self, task: AnyTask) -> dict[str, Any]:
        """Returns the headers that each message of the task has."""
        return expiry.headers_of(task)


def _validate_function(func: Any) -> None:
    """Raises InvalidTask, as Django does, with the value: a lambda in a function, a partial, or a text."""
    if not isfunction(func) or "<locals>" in func.__qualname__:
        message = (
            f"{redaction.quote(func)} cannot be a task, which a worker finds by its module and its name. Write "
            "@task, with its options by name, above a function at the top level of a module."
        )
        raise InvalidTask(message)


def _validate_types(task: AnyTask) -> None:
    """Raises InvalidTask, with the value, where Django's own validation lacks it or would raise another error."""
    # The annotations of a Task give its types, but a caller may pass other ones.
    priority, run_after, queue_name = cast("tuple[Any, Any, Any]", (task.priority, task.run_after, task.queue_name))
    is_number = isinstance(priority, (int, float))
    if not (is_number and MIN_PRIORITY <= priority <= MAX_PRIORITY and priority == int(priority)):
        message = f"priority must be a whole number between {MIN_PRIORITY} and {MAX_PRIORITY}, not {priority!r}."
        raise InvalidTask(message)
    if run_after is not None and not isinstance(run_after, dt.datetime):
        message = f"run_after must be a datetime, or a timedelta in using(), not {run_after!r}."
        raise InvalidTask(message)
    if run_after is not None and settings.USE_TZ and timezone.is_naive(run_after):
        message = f"run_after must be an aware datetime, as timezone.now() is, or a timedelta, not {run_after!r}."
        raise InvalidTask(message)
    names.name_of("queue", queue_name, InvalidTask)


def validate_path(task: AnyTask) -> None:
    """Raises InvalidTask for a task that no worker could find: declared inside a class or bound to another name.

    It runs at the enqueue and not in the decorator, because a decorator runs before the name is bound.
    """
    try:
        registry.declared(task.module_path)
    except UnknownTask as error:
        message = f"{task.module_path!r} cannot be enqueued, because no worker can find it at this path. " + (
            "Each process has another __main__: move the task into the module 'tasks' of an installed app."
            if task.module_path.startswith("__main__.")
            else "Declare a task at the top level of its module and under the name of its function."
        )
        raise InvalidTask(message) from error
