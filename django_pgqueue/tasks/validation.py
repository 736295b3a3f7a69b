"""Validation of the options that go beyond Django's: each mistake raises InvalidTask when the task is declared."""

from __future__ import annotations

import datetime as dt
from functools import lru_cache
from inspect import iscoroutinefunction
from typing import TYPE_CHECKING, Any

from django_pgqueue.compat import InvalidTask, Task
from django_pgqueue.tasks import after, channel, expires, sensitive, unique
from django_pgqueue.tasks.schedule import Recurrence, check_call
from django_pgqueue.values import arguments, limits
from django_pgqueue.values.names import name_of
from django_pgqueue.values.redaction import quote
from django_pgqueue.values.signatures import signature

if TYPE_CHECKING:
    from collections.abc import Callable

    from django_pgqueue.compat import AnyTask

BACKOFF = (
    "backoff must be a callable (exception, task_result) -> seconds, a timedelta or None, not {!r}. For fixed waits: "
    "backoff=lambda exception, result: 30."
)


def validate(task: AnyTask) -> None:
    """Validates the options that Django's ``validate_task`` does not know.  Plain tasks do not have them."""
    name_of("task", task.module_path, InvalidTask)
    _validate_retries(task)
    unique.validate(task)
    channel.validate(task)
    after.validate(task)
    sensitive.validate(task)
    _validate_schedule(task)
    _validate_timeout(task)
    _validate_atomic(task)
    _validate_durable(task)
    _validate_run_in(task)
    expires.validate(task)


def require_task(value: object) -> None:
    """Raises InvalidTask for what is no task, such as a function without ``@task``."""
    if not isinstance(value, Task):
        message = f"{quote(value)} is no task: declare it with @task."
        raise InvalidTask(message)


def _validate_retries(task: AnyTask) -> None:
    max_attempts, backoff = getattr(task, "max_attempts", None), getattr(task, "backoff", None)
    max_lost = getattr(task, "max_lost", None)
    if not arguments.is_max_attempts(max_attempts):
        message = (
            f"max_attempts must be a whole number from 1 to {limits.MAX_MAX_ATTEMPTS:,}, or None for no retries, "
            f"not {max_attempts!r}."
        )
        raise InvalidTask(message)
    if max_lost is not None and not (type(max_lost) is int and 1 <= max_lost <= limits.MAX_MAX_LOST):
        message = (
            f"max_lost must be a whole number from 1 to {limits.MAX_MAX_LOST:,}, or None for "
            f"{limits.DEFAULT_MAX_LOST}, not {max_lost!r}."
        )
        raise InvalidTask(message)
    if backoff is not None and not (callable(backoff) and _has_two_places(backoff)):
        raise InvalidTask(BACKOFF.format(backoff))
    _validate_exceptions(task)


def _has_two_places(backoff: Callable[..., Any]) -> bool:
    try:
        hash(backoff)
    except TypeError:
        return _takes_two.__wrapped__(backoff)
    return _takes_two(backoff)


@lru_cache(maxsize=100)  # each enqueue asks
def _takes_two(backoff: Callable[..., Any]) -> bool:
    try:
        signature(backoff).bind(None, None)
    except TypeError:
        return False
    except ValueError:  # a function in C may have no signature that Python can read
        pass
    return True


def _validate_exceptions(task: AnyTask) -> None:
    retry_on = getattr(task, "retry_on", None)
    for name, kinds in (("retry_on", retry_on or ()), ("no_retry_on", getattr(task, "no_retry_on", ()))):
        if not (
            isinstance(kinds, tuple)
            and all(isinstance(kind, type) and issubclass(kind, BaseException) for kind in kinds)
        ):
            message = f"{name} must be a tuple of exception classes, such as (OSError,), not {kinds!r}."
            raise InvalidTask(message)
    if retry_on is not None and _attempts_of(task) is None:
        message = (
            "retry_on without max_attempts never retries: give the number of attempts, for example max_attempts=5."
        )
        raise InvalidTask(message)


def _attempts_of(task: AnyTask) -> int | None:
    """Returns the ``max_attempts`` of the task, or else the MAX_ATTEMPTS of its backend."""
    own: int | None = getattr(task, "max_attempts", None)
    return getattr(getattr(task.get_backend(), "settings", None), "max_attempts", None) if own is None else own


def _validate_schedule(task: AnyTask) -> None:
    declared = getattr(task, "schedule", None)
    several = declared if isinstance(declared, tuple) else (declared,)
    if declared is not None and not all(isinstance(one, Recurrence) for one in several):
        message = f"schedule must be cron(...) or every(...) of django_pgqueue.tasks, not {declared!r}."
        raise InvalidTask(message)
    names = [one.name for one in several if one is not None and one.name is not None]
    if len(set(names)) < len(names):
        message = f"{task.module_path} has two schedules of the same name: {', '.join(names)}."
        raise InvalidTask(message)
    for one in several:
        if one is not None:
            check_call(task.func, one.args, one.kwargs, takes_context=task.takes_context)


def _validate_timeout(task: AnyTask) -> None:
    timeout = getattr(task, "timeout", None)
    if timeout is None:
        return
    seconds = timeout.total_seconds() if isinstance(timeout, dt.timedelta) else timeout
    if type(seconds) not in (int, float) or not 0 < seconds < float("inf"):
        message = f"timeout must be a number of seconds above 0, a timedelta, or None, not {timeout!r}."
        raise InvalidTask(message)


def _validate_atomic(task: AnyTask) -> None:
    atomic = getattr(task, "atomic", False)
    if type(atomic) is not bool:
        message = f"atomic must be True or False, not {atomic!r}."
        raise InvalidTask(message)
    if atomic and iscoroutinefunction(task.func):
        message = (
            f"{task.module_path} is async and atomic, but Django's transactions do not work in async code. "
            "Make the function synchronous, or leave atomic out and call a function with its own atomic()."
        )
        raise InvalidTask(message)


def _validate_durable(task: AnyTask) -> None:
    durable = getattr(task, "durable", False)
    if type(durable) is not bool:
        message = f"durable must be True or False, not {durable!r}."
        raise InvalidTask(message)
    if durable and getattr(task, "atomic", False):
        message = (
            f"{task.module_path} is durable and atomic: one transaction cannot keep a step and lose the next. Leave "
            "atomic out, and make steps atomic: context.step(…, atomic=True)."
        )
        raise InvalidTask(message)


def _validate_run_in(task: AnyTask) -> None:
    run_in = getattr(task, "run_in", None)
    if run_in is not None and not isinstance(run_in, dt.timedelta):
        message = f"run_in must be a timedelta, not {run_in!r}."
        raise InvalidTask(message)
    if run_in is not None and not task.get_backend().supports_defer:
        message = "Backend does not support run_after."
        raise InvalidTask(message)
