"""``@task``: Django's decorator, and what the queue can do beyond it."""

from __future__ import annotations

import datetime as dt
from dataclasses import dataclass, field, fields, replace
from typing import TYPE_CHECKING, Any, Concatenate, Literal, ParamSpec, Protocol, TypeVar, overload

from django.utils.module_loading import import_string

from django_pgqueue.compat import DEFAULT_TASK_BACKEND_ALIAS, GenericTask, Task, task_backends
from django_pgqueue.tasks import after as dependencies, retry, validation

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine, Iterable

    from django_pgqueue.compat import AnyTaskResult
    from django_pgqueue.tasks.schedule import Recurrence

__all__ = ["PgQueueTask", "task"]

# For type checkers: what enqueue takes, and what the function returns.
P = ParamSpec("P")
R = TypeVar("R")

# Django 6.0's Task has no defaults of its own.
DEFAULTS = {"priority": 0, "queue_name": "default", "run_after": None, "takes_context": False}


@dataclass(frozen=True, slots=True, kw_only=True)
class PgQueueTask(GenericTask[P, R]):
    """A task with retries.  Without ``max_attempts`` it behaves as Django says: an exception fails it at once."""

    max_attempts: int | None = None
    """Attempts that may end in an error.  None: an exception fails the task at once, as in plain django.tasks."""
    backoff: retry.Backoff | None = None
    """``(exception, task_result) -> seconds`` until the next attempt, or None to give up.  Default: exponential."""
    retry_on: tuple[type[BaseException], ...] | None = None
    """Only these exceptions are tried again.  None: all."""
    no_retry_on: tuple[type[BaseException], ...] = ()
    """These fail the task at once."""
    atomic: bool = False
    """One transaction for the task, what it writes and enqueues in the queue's database, and its completion."""
    timeout: float | dt.timedelta | None = None
    """Seconds that an attempt may take, or a timedelta.  An async task is cancelled then; a thread cannot be, so its
    attempt is ended and its process is replaced."""
    # What is not compared says how a message is enqueued and is not kept with it: a result that is read again has an
    # equal task.
    unique_key: str | bool | Callable[..., str] | None = field(default=None, compare=False)
    """At most one message with this key waits or runs: a text, a callable of the arguments, or True for one message for
    each set of arguments."""
    on_conflict: str = field(default="keep", compare=False)
    """What an enqueue does to a waiting message with the same key: keep, replace, debounce or raise."""
    unique_until: str = field(default="finished", compare=False)
    """Until when a message holds its key: finished, or started."""
    schedule: Recurrence | tuple[Recurrence, ...] | None = None
    """When the task is enqueued by itself: ``cron(...)`` or ``every(...)``, or several of them."""
    channel: str | Callable[..., str | None] | None = field(default=None, compare=False)
    """The channel of its messages (its limits: ``control.set_channel``): a name, or a callable of the arguments."""
    after: tuple[int, ...] = field(default=(), compare=False)
    """Ids of the messages that must have ended first; ``using(after=[result, ...])`` sets it."""
    after_policy: str = field(default="finished", compare=False)
    """What they must have: finished, or succeeded."""
    sensitive: bool | tuple[str, ...] | list[str] = False
    """Names of arguments whose values are not shown in the admin or in logs, or True for all that messages say."""
    delay: dt.timedelta | None = None
    """Time from the enqueue until the task may run, by the database's clock; ``using(run_after=timedelta)`` sets it."""

    def __post_init__(self) -> None:
        # super() without arguments does not find its class in a slotted dataclass.
        Task.__post_init__(self)
        validation.validate(self)  # backends other than ours know nothing of them

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickled as a path and values, so that results can be cached.  What is callable, or a schedule, is found again
        with the function: it was declared with it, and may be a lambda.
        """
        values = {item.name: getattr(self, item.name) for item in fields(self) if item.name != "schedule"}
        values = {name: value for name, value in values.items() if not callable(value)}
        return _restore, (self.module_path, values)

    def __copy__(self) -> PgQueueTask[P, R]:
        return self  # nothing in it can change; and the copies of Django's DummyBackend must not go the way of pickles

    def __deepcopy__(self, memo: dict[int, Any]) -> PgQueueTask[P, R]:
        return self

    def using(
        self,
        *,
        priority: int | None = None,
        queue_name: str | None = None,
        run_after: dt.datetime | dt.timedelta | None = None,
        backend: str | None = None,
        max_attempts: int | None = None,
        unique_key: str | bool | Callable[..., str] | None = None,
        on_conflict: str | None = None,
        unique_until: str | None = None,
        channel: str | Callable[..., str | None] | None = None,
        after: Iterable[AnyTaskResult | int | str] | None = None,
        after_policy: str | None = None,
    ) -> PgQueueTask[P, R]:
        """A copy with other values.  ``run_after`` is a time, or a time from the enqueue on.

        >>> send_receipt.using(run_after=timedelta(minutes=1), priority=10).enqueue(order.pk)  # doctest: +SKIP
        """
        changes: dict[str, Any] = {
            "priority": priority,
            "queue_name": queue_name,
            "run_after": run_after,
            "backend": backend,
            "max_attempts": max_attempts,
            "unique_key": unique_key,
            "on_conflict": on_conflict,
            "unique_until": unique_until,
            "channel": channel,
            "after": None if after is None else dependencies.ids(after),
            "after_policy": after_policy,
        }
        changes = {name: value for name, value in changes.items() if value is not None}
        if isinstance(run_after, dt.timedelta):
            changes |= {"delay": run_after, "run_after": None}
        elif run_after is not None:
            changes |= {"delay": None}
        return replace(self, **changes)


class TaskDeclaration(Protocol):
    """What ``@task(...)`` returns: it makes a task of a function.  The first overload is for async functions, whose
    result is what they return when they were awaited.
    """

    @overload
    def __call__(self, function: Callable[P, Coroutine[Any, Any, R]], /) -> PgQueueTask[P, R]: ...
    @overload
    def __call__(self, function: Callable[P, R], /) -> PgQueueTask[P, R]: ...


class DeclarationWithContext(Protocol):
    """The same for functions whose first argument comes from the worker, not from ``enqueue``."""

    @overload
    def __call__(self, function: Callable[Concatenate[Any, P], Coroutine[Any, Any, R]], /) -> PgQueueTask[P, R]: ...
    @overload
    def __call__(self, function: Callable[Concatenate[Any, P], R], /) -> PgQueueTask[P, R]: ...


@overload
def task(*, takes_context: Literal[True], backend: str = ..., **options: Any) -> DeclarationWithContext: ...
@overload
def task(*, takes_context: Literal[False] = ..., backend: str = ..., **options: Any) -> TaskDeclaration: ...
@overload
def task(
    function: Callable[Concatenate[Any, P], Coroutine[Any, Any, R]],
    *,
    takes_context: Literal[True],
    backend: str = ...,
    **options: Any,
) -> PgQueueTask[P, R]: ...
@overload
def task(
    function: Callable[Concatenate[Any, P], R], *, takes_context: Literal[True], backend: str = ..., **options: Any
) -> PgQueueTask[P, R]: ...
@overload
def task(
    function: Callable[P, Coroutine[Any, Any, R]],
    *,
    takes_context: Literal[False] = ...,
    backend: str = ...,
    **options: Any,
) -> PgQueueTask[P, R]: ...
@overload
def task(
    function: Callable[P, R], *, takes_context: Literal[False] = ..., backend: str = ..., **options: Any
) -> PgQueueTask[P, R]: ...
def task(function: Any = None, *, backend: str = DEFAULT_TASK_BACKEND_ALIAS, **options: Any) -> Any:
    """Declares a task.  Django's own ``@task`` does the same from Django 6.1 on; earlier ones take no further options.

    >>> @task(queue_name="mail", max_attempts=5)
    ... def send_receipt(order_id): ...  # doctest: +SKIP

    ``max_attempts``: how often the task may be tried when it raises (default: once).
    ``backoff``: a callable ``(exception, task_result) -> seconds``, or None to give up; by default exponential.
    """
    if "run_after" in options:
        message = (
            "run_after cannot be defined statically with the @task decorator. "
            "Use .using(run_after=...) to set it dynamically."
        )
        raise TypeError(message)

    def declare(func: Any) -> Any:
        return _class_for(backend)(func=func, backend=backend, **DEFAULTS | options)

    return declare if function is None else declare(function)


def _class_for(backend: str) -> Any:
    """A backend that asks for no class of its own gets ours too: tests may run on Django's own backends."""
    wanted = task_backends[backend].task_class
    return PgQueueTask if wanted is Task else wanted


def _restore(path: str, values: dict[str, Any]) -> PgQueueTask[..., Any]:
    """Unpickles."""
    try:
        declared = import_string(path)
        func = declared.func
    except (ImportError, AttributeError) as error:
        message = f"Expected {path!r} to point to a Task instance."
        raise ValueError(message) from error
    names = {item.name for item in fields(PgQueueTask)} - {"func", *values}
    kept = {name: getattr(declared, name) for name in names if hasattr(declared, name)}
    return PgQueueTask(func=func, **kept, **values)
