"""``shared_task`` for code that was written for Celery: the tasks stay as they are, this queue runs them.

    from django_pgqueue.contrib.celery import shared_task

It is for the move.  What Celery offers and this queue means in the same way works; anything else raises TypeError where
the task is declared or called, and names what to write.  Celery need not be installed.
"""

from __future__ import annotations

import datetime as dt
import functools
import inspect
from collections.abc import Coroutine
from dataclasses import dataclass, fields
from typing import TYPE_CHECKING, Any, NoReturn, overload

from django.utils import timezone

from django_pgqueue.compat import DEFAULT_TASK_BACKEND_ALIAS
from django_pgqueue.exceptions import Retry
from django_pgqueue.tasks import habits, parameters, retry
from django_pgqueue.tasks.task import PgQueueTask
from django_pgqueue.values import content
from django_pgqueue.values.signatures import signature

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from django_pgqueue.compat import AnyTaskResult
    from django_pgqueue.tasks.context import PgQueueContext

__all__ = ["shared_task"]

MAX_RETRIES = 3
"""Celery's own default."""
DEFAULT_RETRY_DELAY = 180
"""Seconds, as in Celery."""

RENAMED = {"queue": "queue_name", "priority": "priority", "time_limit": "timeout", "expires": "expires"}
"""Options of Celery, and those of ``@task`` that mean the same."""

DEFAULTS = {"priority": 0, "queue_name": "default", "run_after": None}

HARMLESS = frozenset(
    {"acks_late", "ignore_result", "reject_on_worker_lost", "store_errors_even_if_ignored", "track_started"}
)
"""Options that may stay: a message is acknowledged when its attempt has ended, and its end stands in the history."""

OF_TASK = frozenset(item.name for item in fields(PgQueueTask)) - {"func", "backend"}
"""Options that ``@task`` has."""

WRAPPERS: set[Any] = set()
"""Code of the functions that are put around those of tasks."""

REST = (("args", inspect.Parameter.VAR_POSITIONAL), ("kwargs", inspect.Parameter.VAR_KEYWORD))

INSTEAD = {
    "MaxRetriesExceededError": "Ask self.request.has_no_retry_left before self.retry(…)",
    "link": "Write next_task.using(after=[result]).enqueue(…)",
    "link_error": "Write a batch(…) around the call, whose callback finds a ChildFailed",
    "max_attempts": "Write max_retries=…, which does not count the first attempt",
    "on_failure": "Receive task_finished of django.tasks.signals",
    "on_success": "Receive task_finished of django.tasks.signals",
    "queue_name": "Write queue=…",
    "retry": "Leave it out: no broker is asked",
    "retry_kwargs": "Write max_retries=… and default_retry_delay=… beside autoretry_for",
    "run_after": "Write countdown=… or eta=…",
    "takes_context": "Write bind=True",
    "task_id": "Leave it out: result.id is the id, and unique_key=… of @task enqueues once",
    "throws": "Leave it out: without autoretry_for, an exception fails the task at once",
    "update_state": "Write self.context.progress(fraction, text)",
}
"""What to write for a name that only code for Celery has, or that ``@task`` has and Celery calls otherwise."""

BATCH = "Write a batch(…) or using(after=[…], after_results=True)"
OF_CELERY = {
    "AsyncResult": "Write the_task.get_result(id)",
    "Celery": "Workers are those of manage.py qworker, and the settings are TASKS",
    "Task": "Write a function, with @shared_task(bind=True)",
    "chain": BATCH,
    "chord": BATCH,
    "group": BATCH,
    "signature": BATCH,
}
"""What to write for a name that code imports from Celery beside ``shared_task``."""


def __getattr__(name: str) -> NoReturn:
    message = f"{__name__} has no {name!r}, only shared_task."
    if name in OF_CELERY:  # an AttributeError would lose its text in "from … import …"
        message = f"{message} {OF_CELERY[name]}: the page 'From Celery' has more."
        raise ImportError(message, name=name)
    raise AttributeError(message, name=name)


@overload
def shared_task(function: Callable[..., Any], /) -> CeleryTask: ...
@overload
def shared_task(**options: Any) -> Callable[[Callable[..., Any]], CeleryTask]: ...
def shared_task(function: Callable[..., Any] | None = None, /, **options: Any) -> Any:
    """Declares a task as Celery's ``shared_task`` does.

    >>> @shared_task(bind=True, autoretry_for=(OSError,), retry_backoff=True, max_retries=5)
    ... def send_receipt(self, order_id): ...  # doctest: +SKIP
    """
    if function is not None:
        return _declared(function, options)
    return lambda func: _declared(func, options)


if TYPE_CHECKING:
    Base = PgQueueTask[..., Any]
else:  # Django 5.2's tasks are not generic at run time
    Base = PgQueueTask


@dataclass(frozen=True, slots=True, kw_only=True)
class CeleryTask(Base):
    """Task of this package that has the calls of Celery too."""

    if not TYPE_CHECKING:

        def __getattr__(self, name: str) -> Any:
            if name in {"apply", "run"}:  # call() of a bound task wants the context
                task = self.func.__name__
                message = f"{task} is a task of shared_task, which has no {name!r}. Write {task}(…): it runs here."
                raise AttributeError(message, name=name, obj=self)
            return PgQueueTask.__getattr__(self, name)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Calls the function here and now, as Celery does."""
        function: Any = inspect.unwrap(self.func, stop=lambda one: getattr(one, "__code__", None) not in WRAPPERS)
        if self.takes_context:
            return function(BoundTask(self, None, args, kwargs), *args, **kwargs)
        return function(*args, **kwargs)

    def delay(self, *args: Any, **kwargs: Any) -> AnyTaskResult:
        return self.enqueue(*args, **kwargs)

    def apply_async(
        self,
        args: Iterable[Any] | None = None,
        kwargs: dict[str, Any] | None = None,
        *,
        countdown: float | None = None,
        eta: dt.datetime | None = None,
        expires: float | dt.datetime | None = None,
        queue: str | None = None,
        priority: int | None = None,
        **others: Any,
    ) -> AnyTaskResult:
        """Enqueues the task in the open transaction.  ``countdown`` and a number as ``expires`` are seconds.

        A priority is one of this queue: from -100 to 100, and the highest goes first.
        """
        if others := _that_mean_something(others):
            message = f"{self.module_path}.apply_async: {_refusals(others)}"
            raise TypeError(message)
        if not isinstance(args or (), list | tuple) or not isinstance(kwargs or {}, dict):
            message = (
                f"{self.module_path}.apply_async takes a list and a dict of arguments, not {args!r} and {kwargs!r}."
            )
            raise TypeError(message)
        if countdown is not None and eta is not None:
            message = f"{self.module_path}.apply_async got countdown={countdown!r} and eta={eta!r}: give one of them."
            raise TypeError(message)
        run_after = _moment(eta, "eta") if countdown is None else _span(countdown, "countdown")
        until = _span(expires, "expires") if isinstance(expires, int | float) else _moment(expires, "expires")
        changed = self.using(run_after=run_after, expires=until, queue_name=queue, priority=priority)
        return changed.enqueue(*(args or ()), **(kwargs or {}))

    def AsyncResult(self, task_id: str) -> AnyTaskResult:  # noqa: N802 -- Celery's name
        return self.get_result(task_id)


class BoundTask:
    """First argument of a task with ``bind=True``."""

    def __init__(
        self, task: CeleryTask, context: PgQueueContext | None, args: Any, kwargs: Any, delay: float | None = None
    ) -> None:
        self.task = task
        self._delay = delay
        """Seconds until the next attempt, if ``retry`` names no other time."""
        self.context = context
        """The context of the attempt.  None: the function was called directly."""
        self.request = Request(context, args, kwargs)

    if not TYPE_CHECKING:

        def __getattr__(self, name: str) -> Any:
            instead = INSTEAD.get(name, "self.context is the context of this package, self.task the task")
            message = f"self of a task of shared_task has no {name!r}. {instead}."
            raise AttributeError(message, name=name, obj=self)

    @property
    def name(self) -> str:
        return self.task.module_path

    @property
    def max_retries(self) -> int | None:
        attempts: int | None = self.task.max_attempts
        return None if attempts is None else attempts - 1

    def retry(  # noqa: PLR0917 -- Celery's signature
        self,
        args: Any = None,
        kwargs: Any = None,
        exc: BaseException | None = None,
        throw: bool = True,
        eta: dt.datetime | None = None,
        countdown: float | None = None,
        max_retries: int | None = None,
        **others: Any,
    ) -> NoReturn:
        """Ends the attempt, and asks for another one with the same arguments.

        When the task has no attempt left, ``exc`` is raised, as in Celery.
        """
        given = {"args": args, "kwargs": kwargs, "max_retries": max_retries, **others}
        if refused := [name for name, value in given.items() if value is not None]:
            message = (
                f"{self.name}: self.retry cannot change {', '.join(refused)}. A retry is the same message, with the "
                "arguments and the max_retries with which it was enqueued; enqueue another one for others."
            )
            raise TypeError(message)
        if not throw:
            message = f"{self.name}: self.retry(throw=False) cannot be: a retry ends the attempt by raising."
            raise TypeError(message)
        if self.context is None:  # as Celery does in a direct call
            raise exc or Retry("The task was called directly, and no worker can try it again.")
        if exc is not None and self.request.has_no_retry_left:
            raise exc
        if eta is not None:
            countdown = max(0.0, (_aware(eta, "eta") - dt.datetime.now(dt.UTC)).total_seconds())
        words = "The task asked for another attempt." if exc is None else f"{type(exc).__name__}: {exc}"
        raise Retry(words, after=self._delay if countdown is None else countdown) from exc


class Request:
    """Facts about the attempt, as ``self.request``."""

    def __init__(self, context: PgQueueContext | None, args: Any, kwargs: Any) -> None:
        self._context = context
        self._message = getattr(context, "message", None)
        """None: the function was called directly, or by the ImmediateBackend, which tries nothing again."""
        self.args = args
        self.kwargs = kwargs

    if not TYPE_CHECKING:

        def __getattr__(self, name: str) -> Any:
            known = ", ".join(one for one in (*vars(self), *vars(type(self))) if not one.startswith("_"))
            message = f"self.request has no {name!r}. It has {known}; self.context has what is known besides."
            raise AttributeError(message, name=name, obj=self)

    @property
    def id(self) -> str | None:
        return None if self._context is None else str(self._context.task_result.id)

    @property
    def retries(self) -> int:
        """Attempts before this one."""
        return 0 if self._context is None else self._context.attempt - 1

    @property
    def called_directly(self) -> bool:
        return self._context is None

    @property
    def has_no_retry_left(self) -> bool:
        if self._message is None:
            return not self.called_directly
        return self._message.max_attempts is not None and self._message.attempt >= self._message.max_attempts


def _declared(function: Callable[..., Any], options: dict[str, Any]) -> CeleryTask:
    if inspect.iscoroutinefunction(function):
        message = f"{function.__qualname__} is async, and Celery has no async tasks. Declare it with @task."
        raise TypeError(message)
    if options.get("ignore_result"):
        function = _without_its_result(function)
    options = _that_mean_something(options)
    is_bound, delay = bool(options.pop("bind", False)), _delay(options)
    ours = _translated(function, options)
    given: dict[str, Any] = DEFAULTS | ours | {"takes_context": is_bound}
    if not is_bound:
        return CeleryTask(func=function, backend=DEFAULT_TASK_BACKEND_ALIAS, **given)

    @functools.wraps(function)
    def run(context: PgQueueContext, /, *args: Any, **kwargs: Any) -> Any:
        return function(BoundTask(declared, context, list(args), kwargs, delay), *args, **kwargs)

    _hands_over(run)
    run.__signature__ = _with_a_context(function)  # type: ignore[attr-defined]
    declared = CeleryTask(func=run, backend=DEFAULT_TASK_BACKEND_ALIAS, **given)
    return declared


def _without_its_result(function: Callable[..., Any]) -> Callable[..., None]:
    """Returns ``function`` without what it returns, which may be anything: Celery does not store it."""
    inside = inspect.unwrap(function)
    has_a_yield = inspect.isgeneratorfunction(inside) or inspect.isasyncgenfunction(inside)

    @functools.wraps(function)
    def run(*args: Any, **kwargs: Any) -> None:
        returned = function(*args, **kwargs)
        if isinstance(returned, Coroutine) or (has_a_yield and isinstance(returned, content.NOT_RUN)):
            content.normalize(returned, "the task's return value")

    _hands_over(run)
    return run


def _hands_over(wrapper: Any) -> None:
    """Calls are checked against the function inside."""
    WRAPPERS.add(wrapper.__code__)
    parameters.HANDS_OVER.add(wrapper.__code__)


def _with_a_context(function: Callable[..., Any]) -> inspect.Signature:
    """Returns the signature with the name that django.tasks wants the first parameter to have."""
    found = signature(function)
    if not found.parameters:
        message = f"shared_task(bind=True): {function.__qualname__} has no parameters, and the first one is self."
        raise TypeError(message)
    first, *others = found.parameters.values()
    if any(other.name == "context" for other in others):  # as an argument of its own
        first = first.replace(kind=inspect.Parameter.POSITIONAL_ONLY)
        others = [inspect.Parameter(name, kind) for name, kind in REST]
    return found.replace(parameters=[first.replace(name="context"), *others])


def _translated(function: Callable[..., Any], options: dict[str, Any]) -> dict[str, Any]:
    """Returns the options of ``@task`` that mean the same."""
    left = dict(options)
    name = left.pop("name", None)
    path = f"{function.__module__}.{function.__qualname__}"
    if name not in (None, path):
        message = f"shared_task(name={name!r}): the name of a task is its dotted path here, {path!r}. Leave name out."
        raise TypeError(message)
    ours = {here: left.pop(theirs) for theirs, here in RENAMED.items() if theirs in left}
    if isinstance(ours.get("expires"), int | float):
        ours["expires"] = _span(ours["expires"], "expires")
    ours |= _retries(path, left)
    if left:
        message = f"shared_task({path}): {_refusals(left)}"
        raise TypeError(message)
    return ours


def _retries(path: str, left: dict[str, Any]) -> dict[str, Any]:
    max_retries = left.pop("max_retries", MAX_RETRIES)
    if type(max_retries) is not int or max_retries < 0:
        message = (
            f"shared_task({path}): max_retries={max_retries!r} is not a whole number from 0 on: each task has a limit "
            "here."
        )
        raise TypeError(message)
    return {
        "max_attempts": max_retries + 1,
        # Without autoretry_for an exception fails the task at once: only self.retry asks for another attempt.
        "retry_on": _classes(path, left, "autoretry_for"),
        "no_retry_on": _classes(path, left, "dont_autoretry_for"),
        "backoff": _backoff(left),
    }


def _classes(path: str, left: dict[str, Any], name: str) -> tuple[type[BaseException], ...]:
    classes = left.pop(name, ())
    if isinstance(classes, type):
        message = f"shared_task({path}): {name} must be a tuple of exception classes: ({classes.__name__},)."
        raise TypeError(message)
    return tuple(classes)


def _backoff(left: dict[str, Any]) -> retry.Backoff:
    base, longest = _number(left, "retry_backoff", 0), _number(left, "retry_backoff_max", 600)
    has_jitter, delay = left.pop("retry_jitter", True), _number(left, "default_retry_delay", DEFAULT_RETRY_DELAY)
    if not base:
        return lambda _exception, _result: delay
    return retry.Exponential(base=base, longest=longest, jitter=0.25 if has_jitter else 0.0)


def _delay(options: dict[str, Any]) -> float:
    """Returns the seconds until a retry that the task asks for: as in Celery, ``retry_backoff`` is for errors only."""
    return _number(dict(options), "default_retry_delay", DEFAULT_RETRY_DELAY)


def _number(left: dict[str, Any], name: str, default: float) -> float:
    value = left.pop(name, default)
    if not isinstance(value, int | float) or not 0 <= value < float("inf"):
        message = f"shared_task({name}={value!r}): it must be a number of seconds."
        raise TypeError(message)
    return float(value)


def _that_mean_something(options: dict[str, Any]) -> dict[str, Any]:
    """Returns the options without those that may stay, and those that are None: Celery means its default by that."""
    return {
        name: value
        for name, value in options.items()
        if name not in HARMLESS and (value is not None or name == "max_retries")
    }


def _refusals(names: Iterable[str]) -> str:
    """Returns one sentence for each option that has no meaning here."""
    sentences = []
    for name in names:
        instead = habits.option(name) or (f"{name}=…" if name in OF_TASK else None)
        next_step = "Leave it out" if instead is None else f"Declare the task with @task: {instead}"
        next_step = INSTEAD.get(name, next_step)
        sentences.append(f"{name!r} has no meaning here. {next_step}.")
    return " ".join(sentences)


def _span(seconds: Any, name: str) -> dt.timedelta:
    try:
        return dt.timedelta(seconds=seconds)
    except (TypeError, ValueError, OverflowError) as error:
        message = f"{name} must be a number of seconds, not {seconds!r}."
        raise TypeError(message) from error


def _moment(value: dt.datetime | None, name: str) -> dt.datetime | None:
    return None if value is None else _aware(value, name)


def _aware(value: Any, name: str) -> dt.datetime:
    if not isinstance(value, dt.datetime):
        message = f"{name} must be a datetime, not {value!r}."
        raise TypeError(message)
    return timezone.make_aware(value, dt.UTC) if timezone.is_naive(value) else value
