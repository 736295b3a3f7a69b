"""The tasks API: the one module that knows where it is imported from.

Django has it from 6.0 on.  On Django 5.2 the backport ``django-tasks`` supplies the same API under other names.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import django
from django.core.exceptions import ImproperlyConfigured

from django_pgqueue.distribution import install_command

if TYPE_CHECKING:
    from types import ModuleType


def error_named(name: str, exceptions: ModuleType) -> Any:
    """Returns an error of the backport by Django's name, which its releases up to 0.12 end with ``Error``.

    A later release has only the new name, so that an import of either name fails with half of the releases.
    """
    return getattr(exceptions, name, None) or getattr(exceptions, f"{name}Error")


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
        # Installers add the backport only on Python 3.11: on a newer Python they would choose a newer Django instead.
        _message = (
            f"Django {django.get_version()} needs the backport django-tasks: {install_command('django52')}, "
            "and 'django_tasks' in INSTALLED_APPS."
        )
        raise ImproperlyConfigured(_message) from error
    from django_tasks import TaskContext, TaskResult, TaskResultStatus, exceptions, signals, task_backends
    from django_tasks.backends.base import BaseTaskBackend
    from django_tasks.backends.dummy import DummyBackend
    from django_tasks.backends.immediate import ImmediateBackend
    from django_tasks.base import DEFAULT_TASK_BACKEND_ALIAS, Task, TaskError
    from django_tasks.exceptions import TaskException, TaskResultDoesNotExist, TaskResultMismatch
    from django_tasks.signals import task_enqueued, task_finished, task_started
    from django_tasks.utils import normalize_json

    InvalidTask = error_named("InvalidTask", exceptions)
    InvalidTaskBackend = error_named("InvalidTaskBackend", exceptions)
    AnyTask, AnyTaskResult = Task, TaskResult
    TASKS_LOGGER = "django_tasks"

LOG_RECEIVERS = tuple(
    receiver
    for name in ("log_task_enqueued", "log_task_started", "log_task_finished")
    if (receiver := getattr(signals, name, None))
)
"""Receivers that Django itself connects to the signals.  They write a line to its log and do nothing else."""


if not TYPE_CHECKING:

    class GenericTask:
        """``GenericTask[P, R]`` is ``Task[P, R]`` for type checkers.  At run time Django's class is not generic."""

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
    "normalize_json",
    "task_backends",
    "task_enqueued",
    "task_finished",
    "task_started",
]
