"""``@task``: Django's decorator, and what the queue can do beyond it."""

from __future__ import annotations

import datetime as dt
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, overload

from django_pgqueue.compat import DEFAULT_TASK_BACKEND_ALIAS, Task, task_backends

if TYPE_CHECKING:
    from collections.abc import Callable

    from django_pgqueue.retry import Backoff

__all__ = ["PgQueueTask", "task"]


@dataclass(frozen=True, slots=True, kw_only=True)
class PgQueueTask(Task):  # type: ignore[type-arg]
    """A task with retries.  Without ``max_attempts`` it behaves as Django says: an exception fails it at once."""

    max_attempts: int | None = None
    backoff: Backoff | None = None
    delay: dt.timedelta | None = None
    """Time from the enqueue until the task may run, by the database's clock; ``using(run_after=timedelta)`` sets it."""

    def __post_init__(self) -> None:
        # super() without arguments does not find its class in a slotted dataclass.
        Task.__post_init__(self)

    def using(self, *, run_after: dt.datetime | dt.timedelta | None = None, **changes: Any) -> PgQueueTask:
        """A copy with other values: ``priority``, ``queue_name``, ``run_after`` (a time, or a time from now),
        ``backend``, ``max_attempts``, ``backoff``.

        >>> send_receipt.using(run_after=timedelta(minutes=1), priority=10).enqueue(order.pk)  # doctest: +SKIP
        """
        changes = {name: value for name, value in changes.items() if value is not None}
        if isinstance(run_after, dt.timedelta):
            changes |= {"delay": run_after, "run_after": None}
        elif run_after is not None:
            changes |= {"delay": None, "run_after": run_after}
        return replace(self, **changes)


@overload
def task(function: Callable[..., Any], *, backend: str = ..., **options: Any) -> PgQueueTask: ...
@overload
def task(*, backend: str = ..., **options: Any) -> Callable[[Callable[..., Any]], PgQueueTask]: ...
def task(function: Any = None, *, backend: str = DEFAULT_TASK_BACKEND_ALIAS, **options: Any) -> Any:
    """Declares a task.  Django's own ``@task`` does the same from Django 6.1 on; earlier ones take no further options.

    >>> @task(queue_name="mail", max_attempts=5)
    ... def send_receipt(order_id): ...  # doctest: +SKIP

    ``max_attempts``: how often the task may be tried when it raises (default: once).
    ``backoff``: a callable ``(exception, task_result) -> seconds``, or None to give up; by default exponential.
    """
    if "run_after" in options:
        message = (
            "run_after can not be given to @task, which is called once: use .using(run_after=...) for each enqueue."
        )
        raise TypeError(message)

    def declare(func: Any) -> Any:
        return task_backends[backend].task_class(func=func, backend=backend, **options)

    return declare if function is None else declare(function)
