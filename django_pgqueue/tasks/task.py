"""``@task``: Django's decorator, with the options of this package."""

from __future__ import annotations

import datetime as dt
from dataclasses import dataclass, field, fields, replace
from functools import wraps
from inspect import signature
from typing import TYPE_CHECKING, Any, Concatenate, Literal, ParamSpec, Protocol, TypeVar, overload

from django.utils.module_loading import import_string

from django_pgqueue.compat import (
    DEFAULT_TASK_BACKEND_ALIAS,
    GenericTask,
    InvalidTask,
    InvalidTaskBackend,
    Task,
    task_backends,
)
from django_pgqueue.tasks import after as dependencies, habits, retry, validation

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Coroutine, Iterable

    from django_pgqueue.compat import AnyTaskResult
    from django_pgqueue.tasks.schedule import Recurrence

__all__ = ["PgQueueTask", "task"]

# For type checkers: the parameters of enqueue, and the return type of the function.
P = ParamSpec("P")
R = TypeVar("R")


def _only_known_options(using: Callable[P, R]) -> Callable[P, R]:
    """Names the right option to people who come from another queue."""
    known = set(signature(using).parameters) - {"self"}

    @wraps(using)
    def with_options(*args: P.args, **options: P.kwargs) -> R:
        _validate_names("using()", known, options)
        return using(*args, **options)

    return with_options


class Parent(Protocol):
    """The context of a durable task, as far as ``enqueue_in`` needs it."""

    def enqueue(self, task: Any, *args: Any, **kwargs: Any) -> Any: ...
    async def aenqueue(self, task: Any, *args: Any, **kwargs: Any) -> Any: ...


GIVEN = {"func", "backend", "run_after"}
"""What a task has beside its options."""
# Django 6.0's Task has no defaults of its own.
DEFAULTS = {"priority": 0, "queue_name": "default", "run_after": None, "takes_context": False}


@dataclass(frozen=True, slots=True, kw_only=True)
class PgQueueTask(GenericTask[P, R]):
    """Task with the options of this package, such as retries.  Without options it behaves like Django's own."""

    max_attempts: int | None = None
    """Attempts that may end in an error.  None: an exception fails the task at once, as in plain django.tasks."""
    backoff: retry.Backoff | None = None
    """Callable ``(exception, task_result) -> wait`` until the next attempt: seconds or a timedelta; None gives up.
    Default: exponential."""
    retry_on: tuple[type[BaseException], ...] | None = None
    """Exceptions after which the task is tried again.  None: all."""
    no_retry_on: tuple[type[BaseException], ...] = ()
    """Exceptions that fail the task at once."""
    atomic: bool = False
    """Whether the task, its writes and enqueues in the queue's database, and its completion are one transaction."""
    durable: bool = False
    """Whether the steps of the task are recorded, so that a later attempt goes on where the last one ended.  The
    function gets a ``DurableContext`` as its first argument."""
    timeout: float | dt.timedelta | None = None
    """Seconds that an attempt may take, or a timedelta.  Then the worker cancels an async task.  It cannot cancel a
    thread, so it ends the attempt and replaces the process."""
    # Fields with compare=False affect the enqueue only, and messages do not keep them.  So the task of a result that is
    # read again equals the original.
    unique_key: str | bool | Callable[..., str] | None = field(default=None, compare=False)
    """Key of which at most one message waits or runs: a text, a callable of the arguments, or True for one message for
    each set of arguments."""
    on_conflict: str = field(default="keep", compare=False)
    """Policy of an enqueue for a waiting message with the same key: keep, replace, debounce or raise."""
    unique_until: str = field(default="finished", compare=False)
    """Moment at which a message releases its key: finished, or started."""
    schedule: Recurrence | tuple[Recurrence, ...] | None = None
    """Schedule by which workers enqueue the task: ``cron(...)`` or ``every(...)``, or several of them."""
    channel: str | Callable[..., str | None] | None = field(default=None, compare=False)
    """Channel of its messages: a name, or a callable of the arguments.  ``control.set_channel`` sets its limits."""
    after: tuple[int, ...] = field(default=(), compare=False)
    """Ids of the messages that must have ended first; ``using(after=[result, ...])`` sets it."""
    after_policy: str = field(default="finished", compare=False)
    """Condition on these messages: they must have finished, or succeeded."""
    after_results: bool = field(default=False, compare=False)
    """Whether their results are kept for this one, which reads them by ``context.results()``."""
    max_lost: int | None = field(default=None, compare=False)
    """Times that a worker may die while it runs a message of the task, before the message fails.  None: 20."""
    sensitive: bool | tuple[str, ...] | list[str] = False
    """Names of arguments whose values the admin and the logs hide, or True for all content of its messages."""
    expires: dt.datetime | dt.timedelta | None = field(default=None, compare=False)
    """Time until which a message is worth beginning: one that no worker has begun by then is cancelled.  A timedelta
    counts from the enqueue."""
    run_in: dt.timedelta | None = None
    """Time from the enqueue until the task may run, by the database's clock; ``using(run_after=timedelta)`` sets it."""

    def __post_init__(self) -> None:
        # super() without arguments does not find its class in a slotted dataclass.
        if self.durable is True:
            object.__setattr__(self, "takes_context", True)
        Task.__post_init__(self)
        validation.validate(self)  # other backends do not check these options

    if not TYPE_CHECKING:  # for type checkers, a task has the attributes above and no others, and is not callable
        do_not_call_in_templates = True

        def __new__(cls, **options: Any) -> Any:
            """Names the right option to people who come from another queue, where Django's own decorator is used."""
            if not options.keys() <= cls.__dataclass_fields__.keys():
                _validate_names("@task", _options_of(cls), [name for name in options if name not in GIVEN])
            return object.__new__(cls)

        def __call__(self, *_args: Any, **_kwargs: Any) -> Any:
            task = self.func.__name__
            message = f"{task} is a task of django.tasks, which is not called. Write {habits.CALL.format(task=task)}."
            raise TypeError(message)

        def __getattr__(self, name: str) -> Any:
            """Names the right call to people who come from another queue.  It runs only for names that a task lacks."""
            raise habits.missing(self, name, habits.of_task(name, self.func.__name__))

        def call(self, *args: Any, **kwargs: Any) -> Any:
            self._require_steps(args)
            return Task.call(self, *args, **kwargs)

        async def acall(self, *args: Any, **kwargs: Any) -> Any:
            self._require_steps(args)
            return await Task.acall(self, *args, **kwargs)

        def _require_steps(self, args: tuple[Any, ...]) -> None:
            """Django's ImmediateBackend gives a task another context."""
            if self.durable and not (args and hasattr(args[0], "step")):
                message = (
                    f"{self.module_path} is durable: its first argument is the context with its steps, which a queue "
                    "gives. In tests use drain() of django_pgqueue.testing, or the InlineBackend of "
                    "django_pgqueue.stand_ins."
                )
                raise InvalidTask(message)

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickles the task as a path and values, so that results can be cached.

        Callables, which may be lambdas, and schedules are left out.  ``_restore`` takes them from the declared task.
        Without this method, Django 5.2 pickles no task, and Django 6.1 none that has a lambda.
        """
        values = {item.name: getattr(self, item.name) for item in fields(self) if item.name != "schedule"}
        values = {name: value for name, value in values.items() if not callable(value)}
        return _restore, (self.module_path, values)

    def __copy__(self) -> PgQueueTask[P, R]:
        # A task is immutable.  A copy made as pickles are would have the declared callables and not those of using():
        # Django's DummyBackend copies each task that it keeps.
        return self

    def __deepcopy__(self, memo: dict[int, Any]) -> PgQueueTask[P, R]:
        return self

    @_only_known_options
    def using(
        self,
        *,
        priority: int | None = None,
        queue_name: str | None = None,
        run_after: dt.datetime | dt.timedelta | None = None,
        backend: str | None = None,
        max_attempts: int | None = None,
        max_lost: int | None = None,
        unique_key: str | bool | Callable[..., str] | None = None,
        on_conflict: str | None = None,
        unique_until: str | None = None,
        channel: str | Callable[..., str | None] | None = None,
        after: Iterable[AnyTaskResult | int | str] | None = None,
        after_policy: str | None = None,
        after_results: bool | None = None,
        expires: dt.datetime | dt.timedelta | None = None,
    ) -> PgQueueTask[P, R]:
        """Returns a copy with other values.  ``run_after``: a datetime, or a timedelta from the enqueue on.

        >>> send_receipt.using(run_after=timedelta(minutes=1), priority=10).enqueue(order.pk)  # doctest: +SKIP
        """
        if backend is not None:
            _require_backend(backend)
        changes: dict[str, Any] = {
            "priority": priority,
            "queue_name": queue_name,
            "run_after": run_after,
            "backend": backend,
            "max_attempts": max_attempts,
            "max_lost": max_lost,
            "unique_key": unique_key,
            "on_conflict": on_conflict,
            "unique_until": unique_until,
            "channel": channel,
            "after": None if after is None else dependencies.ids(after, backend or self.backend),
            "after_policy": after_policy,
            "after_results": after_results,
            "expires": expires,
        }
        changes = {name: value for name, value in changes.items() if value is not None}
        if isinstance(run_after, dt.timedelta):
            changes |= {"run_in": run_after, "run_after": None}
        elif run_after is not None:
            changes |= {"run_in": None}
        return replace(self, **changes)

    def enqueue_in(self, context: Parent, /, *args: P.args, **kwargs: P.kwargs) -> Any:
        """Enqueues a child of a durable task, once for all of its attempts: ``context.gather`` waits for it.

        >>> parcels = context.gather([pack.enqueue_in(context, item) for item in items])  # doctest: +SKIP
        """
        return context.enqueue(self, *args, **kwargs)

    async def aenqueue_in(self, context: Parent, /, *args: P.args, **kwargs: P.kwargs) -> Any:
        """The ``async`` variant of ``enqueue_in``."""
        return await context.aenqueue(self, *args, **kwargs)


class TaskDeclaration(Protocol):
    """Type of the decorator ``@task(...)``, which makes a task of a function.

    The first overload is for async functions: the task's result is the awaited value.
    """

    @overload
    def __call__(self, function: Callable[P, Coroutine[Any, Any, R]], /) -> PgQueueTask[P, R]: ...
    @overload
    def __call__(self, function: Callable[P, R], /) -> PgQueueTask[P, R]: ...


class DeclarationWithContext(Protocol):
    """Type of the decorator for functions whose first argument comes from the worker, not from ``enqueue``."""

    @overload
    def __call__(self, function: Callable[Concatenate[Any, P], Coroutine[Any, Any, R]], /) -> PgQueueTask[P, R]: ...
    @overload
    def __call__(self, function: Callable[Concatenate[Any, P], R], /) -> PgQueueTask[P, R]: ...


@overload
def task(*, durable: Literal[True], backend: str = ..., **options: Any) -> DeclarationWithContext: ...
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
    """Declares a task.  On Django 6.1 and newer, ``django.tasks.task`` takes the same options; on older ones it takes
    Django's own alone.

    >>> @task(queue_name="mail", max_attempts=5)
    ... def send_receipt(order_id): ...  # doctest: +SKIP

    Django's options are ``queue_name``, ``priority``, ``backend`` and ``takes_context``.  The others are the fields of
    ``PgQueueTask``, such as ``max_attempts``: how often the task may be tried if it raises (default: once).
    """
    if "run_after" in options:
        message = (
            "run_after cannot be defined statically with the @task decorator. "
            "Use .using(run_after=...) to set it dynamically."
        )
        raise TypeError(message)

    if not (function is None or callable(function)):
        message = f'@task takes its options by name, such as @task(queue_name="mail"), and not {function!r}.'
        raise TypeError(message)

    def declare(func: Any) -> Any:
        kind = _class_for(backend)
        _validate_names("@task", _options_of(kind), options)
        return kind(func=func, backend=backend, **DEFAULTS | options)

    return declare if function is None else declare(function)


def _options_of(kind: Any) -> set[str]:
    return {item.name for item in fields(kind)} - GIVEN


def _class_for(backend: str) -> Any:
    """Returns the task class of a backend, and PgQueueTask for Django's own backends, on which tests may run."""
    _require_backend(backend)
    wanted = task_backends[backend].task_class
    return PgQueueTask if wanted is Task else wanted


def _require_backend(alias: str) -> None:
    """Raises InvalidTaskBackend.  Django's own words, "The connection 'x' doesn't exist", sound like a database's."""
    if alias not in task_backends.settings:
        known = ", ".join(map(repr, task_backends.settings)) or "none"
        message = f"TASKS has no backend {alias!r} (it has: {known}). Add it there, or name another as backend=."
        raise InvalidTaskBackend(message)


def _validate_names(what: str, known: Collection[str], options: Iterable[str]) -> None:
    """Raises TypeError for an option that ``what`` does not have."""
    for name in options:
        if name not in known:
            instead = habits.option(name)
            message = f"{what} has no option {name!r}. " + (
                f"Instead: {instead}." if instead is not None else f"The options are {', '.join(sorted(known))}."
            )
            raise TypeError(message)


def _restore(path: str, values: dict[str, Any]) -> PgQueueTask[..., Any]:
    """Makes a task from its pickle (see ``__reduce__``)."""
    try:
        declared = import_string(path)
        func = declared.func
    except (ImportError, AttributeError) as error:
        message = f"Expected {path!r} to point to a Task instance."
        raise ValueError(message) from error
    names = {item.name for item in fields(PgQueueTask)} - {"func", *values}
    kept = {name: getattr(declared, name) for name in names if hasattr(declared, name)}
    kind = type(declared) if isinstance(declared, PgQueueTask) else PgQueueTask
    return kind(func=func, **kept, **values)
