"""Schedules that the project's code declares on its tasks."""

from __future__ import annotations

import json
import logging
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from django_pgqueue import functions
from django_pgqueue.backend.pgqueue import PgQueueBackend
from django_pgqueue.compat import InvalidTask
from django_pgqueue.exceptions import InvalidSchedule, UnknownTask
from django_pgqueue.tasks import call as task_call, registry, sensitive
from django_pgqueue.values import redaction
from django_pgqueue.values.expiry import headers_of

if TYPE_CHECKING:
    from collections.abc import Iterator

    from django_pgqueue.compat import AnyTask
    from django_pgqueue.functions import NewMessage, UniqueKey
    from django_pgqueue.tasks.schedule import Recurrence

logger = logging.getLogger("django_pgqueue.worker")


@dataclass(frozen=True, slots=True, kw_only=True)
class ScheduleDeclaration:
    name: str
    task: AnyTask
    recurrence: Recurrence
    max_attempts: int | None
    max_content_bytes: int


def declarations(database: str) -> dict[str, ScheduleDeclaration]:
    """Returns the schedules of the tasks whose queue is in ``database``, by name.  It knows imported modules only."""
    found: dict[str, ScheduleDeclaration] = {}
    for one in _declared(database):
        if one.name in found:
            first, other = found[one.name].task.module_path, one.task.module_path
            logger.error(
                "schedule name=%s is declared by %s and by %s: the declaration of %s counts",
                one.name,
                first,
                other,
                first,
            )
        else:
            found[one.name] = one
    return found


def clashes(database: str) -> dict[str, list[str]]:
    """Returns the names that are declared more than once, with the paths of the tasks that declare them."""
    found: dict[str, list[str]] = {}
    for one in _declared(database):
        found.setdefault(one.name, []).append(one.task.module_path)
    return {name: paths for name, paths in found.items() if len(paths) > 1}


def check_public(path: str) -> None:
    """Raises InvalidSchedule for an internal task of this package."""
    if registry.is_internal(path):
        message = (
            f"{path} is an internal task of django_pgqueue, which no schedule can enqueue. Name a task of the project."
        )
        raise InvalidSchedule(message)


def message_of(
    connection: functions.Connection, schedule: functions.KnownSchedule, *, version: str | None
) -> NewMessage | None:
    """Returns the message that the schedule enqueues, with the ``version`` of this deploy.  None: it is deleted."""
    channel, key = channel_and_key(connection, schedule)
    message = functions.schedule_message(connection, schedule.name)
    if message is None:
        return None
    if more := headers(schedule.task):
        both = more | json.loads(message.headers or "{}")
        message = replace(message, headers=json.dumps(both, ensure_ascii=False))
    return replace(message, channel=channel, unique=key, max_lost=max_lost(schedule.task), version=version)


def channel_and_key(
    connection: functions.Connection, schedule: functions.KnownSchedule
) -> tuple[str | None, UniqueKey | None]:
    """Returns the channel and the unique key that the task gives to a message of its schedule.

    They are computed at each enqueue: a schedule that was made by hand or by other code may have others.
    """
    check_public(schedule.task)
    try:
        task = registry.find(schedule.task)
    except UnknownTask:
        return None, None  # the attempt at its message will report it
    if getattr(task, "unique_key", None) is None and getattr(task, "channel", None) is None:
        return None, None
    plain = functions.schedule_message(connection, schedule.name)
    if plain is None:  # somebody has just deleted it
        return None, None
    arguments = _call_of(schedule, plain.content)
    backend = task.get_backend()
    hidden = isinstance(backend, PgQueueBackend) and sensitive.hides(task, backend.settings)
    try:
        with redaction.redacted(hidden):
            return task_call.channel_and_key(task, arguments)
    except InvalidTask as error:
        raise InvalidSchedule(str(error)) from error
    except Exception as error:  # a project's own function may raise anything
        words = type(error).__name__ if hidden else f"{type(error).__name__}: {error}"
        message = f"The unique_key or the channel of {schedule.task} cannot be computed: {words}."
        raise InvalidSchedule(message) from error


def _call_of(schedule: functions.KnownSchedule, content: str) -> dict[str, Any]:
    """Returns the call that a schedule makes.  Another program may have written anything."""
    try:
        call = json.loads(content)
        found = {"args": call["args"], "kwargs": call["kwargs"]}
    except (KeyError, TypeError) as error:
        message = f'The content of the schedule {schedule.name} must be {{"args": [...], "kwargs": {{...}}}}.'
        raise InvalidSchedule(message) from error
    except (ValueError, RecursionError) as error:  # numbers and lists that PostgreSQL takes, and Python does not
        message = f"Python cannot read the content of the schedule {schedule.name}: {error}."
        raise InvalidSchedule(message) from error
    return found


def max_lost(path: str) -> int | None:
    """Returns the ``max_lost`` of the task that a schedule names."""
    try:
        return getattr(registry.find(path), "max_lost", None)
    except UnknownTask:
        return None


def headers(path: str) -> dict[str, Any]:
    """Returns the headers that the task gives to a message of its schedule: when it expires."""
    try:
        return headers_of(registry.find(path))
    except UnknownTask:
        return {}


def _declared(database: str) -> Iterator[ScheduleDeclaration]:
    for task in registry.scheduled():
        backend = task.get_backend()
        if not isinstance(backend, PgQueueBackend) or backend.settings.database != database:
            continue
        for name, recurrence in _named(task):
            yield ScheduleDeclaration(
                name=name,
                task=task,
                recurrence=recurrence,
                max_attempts=backend.max_attempts(task),
                max_content_bytes=backend.settings.max_content_bytes,
            )


def _named(task: AnyTask) -> Iterator[tuple[str, Recurrence]]:
    """Yields the schedules of a task by name.  Default name: the task's path, numbered if there are several."""
    declared = getattr(task, "schedule", None) or ()
    several = declared if isinstance(declared, tuple) else (declared,)
    for number, one in enumerate(several, start=1):
        yield one.name or (task.module_path if len(several) == 1 else f"{task.module_path}#{number}"), one
