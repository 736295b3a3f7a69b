"""The one place that knows where the tasks API comes from.

Django has it from 6.0 on; on Django 5.2 the backport ``django-tasks`` supplies the same API under other names.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import django
from django.core.exceptions import ImproperlyConfigured

if TYPE_CHECKING or django.VERSION >= (6, 0):
    from django.tasks import TaskContext, TaskResult, TaskResultStatus, signals, task_backends
    from django.tasks.backends.base import BaseTaskBackend
    from django.tasks.backends.dummy import DummyBackend
    from django.tasks.backends.immediate import ImmediateBackend
    from django.tasks.base import DEFAULT_TASK_BACKEND_ALIAS, Task, TaskError
    from django.tasks.exceptions import (
        InvalidTask,
        InvalidTaskBackend,
        TaskException,
        TaskResultDoesNotExist,
        TaskResultMismatch,
    )
    from django.tasks.signals import task_enqueued, task_finished, task_started
    from django.utils.json import normalize_json

    if TYPE_CHECKING:
        from typing import TypeAlias

        GenericTask = Task
        AnyTask: TypeAlias = Task[..., Any]
        AnyTaskResult: TypeAlias = TaskResult[..., Any]
    else:
        AnyTask, AnyTaskResult = Task, TaskResult
    TASKS_LOGGER = "django.tasks"
else:
    try:
        import django_tasks  # noqa: F401
    except ModuleNotFoundError as error:
        # An installer brings it to Python 3.11 alone: elsewhere it would rather bring a newer Django.
        _message = (
            f"Django {django.get_version()} needs the backport django-tasks: pip install 'django-pgqueue[django52]', "
            "and 'django_tasks' in INSTALLED_APPS."
        )
        raise ImproperlyConfigured(_message) from error
    from django_tasks import TaskContext, TaskResult, TaskResultStatus, signals, task_backends
    from django_tasks.backends.base import BaseTaskBackend
    from django_tasks.backends.dummy import DummyBackend
    from django_tasks.backends.immediate import ImmediateBackend
    from django_tasks.base import DEFAULT_TASK_BACKEND_ALIAS, Task, TaskError
    from django_tasks.exceptions import (
        InvalidTaskBackendError as InvalidTaskBackend,
        InvalidTaskError as InvalidTask,
        TaskException,
        TaskResultDoesNotExist,
        TaskResultMismatch,
    )
    from django_tasks.signals import task_enqueued, task_finished, task_started
    from django_tasks.utils import normalize_json

    AnyTask, AnyTaskResult = Task, TaskResult
    TASKS_LOGGER = "django_tasks"

LOG_RECEIVERS = tuple(
    receiver
    for name in ("log_task_enqueued", "log_task_started", "log_task_finished")
    if (receiver := getattr(signals, name, None))
)
"""What Django connects to the signals by itself: they write a line to its log, and nothing else."""


def made_result(**values: Any) -> AnyTaskResult:
    """``TaskResult(...)`` without its normalisation: for values that are normal."""
    result = object.__new__(TaskResult)
    for name, value in values.items():
        object.__setattr__(result, name, value)
    return result


if not TYPE_CHECKING:

    class GenericTask:
        """``GenericTask[P, R]`` is ``Task[P, R]`` for type checkers.  When code runs, Django's own is not generic."""

        def __class_getitem__(cls, parameters):
            return Task


__all__ = [
    "DEFAULT_TASK_BACKEND_ALIAS",
    "LOG_RECEIVERS",
    "TASKS_LOGGER",
    "AnyTask",
    "AnyTaskResult",
    "BaseTaskBackend",
    "DummyBackend",
    "GenericTask",
    "ImmediateBackend",
    "InvalidTask",
    "InvalidTaskBackend",
    "Task",
    "TaskContext",
    "TaskError",
    "TaskException",
    "TaskResult",
    "TaskResultDoesNotExist",
    "TaskResultMismatch",
    "TaskResultStatus",
    "made_result",
    "normalize_json",
    "task_backends",
    "task_enqueued",
    "task_finished",
    "task_started",
]
