"""The tasks of these tests, each named after what it does."""

from __future__ import annotations

import asyncio
from datetime import timedelta
from typing import TYPE_CHECKING, Any

from django.contrib.auth.models import Group
from django.db import DatabaseError, connection, transaction

from django_pgqueue.exceptions import Retry
from django_pgqueue.tasks import task

if TYPE_CHECKING:
    from collections.abc import Callable

    from django_pgqueue.compat import TaskContext

    Context = TaskContext[Any, Any]

at_once: Callable[[BaseException, Any], float | None] = lambda *_: 0  # noqa: E731 -- as projects write it


class Trouble(Exception):
    """The error of the failing tasks."""


@task
def do_nothing(*args: Any, **kwargs: Any) -> None:
    """The bare decorator."""


@task()
async def do_nothing_async(*args: Any, **kwargs: Any) -> None:
    await asyncio.sleep(0)


@task()
def echo(*args: Any, **kwargs: Any) -> dict[str, Any]:
    return {"args": args, "kwargs": kwargs}


@task(atomic=True)
def echo_atomically(*args: Any, **kwargs: Any) -> dict[str, Any]:
    return {"args": args, "kwargs": kwargs}


@task
def give(expression: str) -> Any:
    """Gives what JSON may have no word for."""
    return eval(expression)  # noqa: S307


@task
def fail(message: str = "as it was told") -> None:
    raise Trouble(message)


@task
async def fail_async() -> None:
    await asyncio.sleep(0)
    raise Trouble


@task
def leave() -> None:
    raise SystemExit(3)


@task
def be_interrupted() -> None:
    raise KeyboardInterrupt


@task
def retry_with(expression: str, after: float = 0) -> None:
    raise Retry(after=after, state=eval(expression))  # noqa: S307


@task(takes_context=True)
def defer_with(context: Any, expression: str, after: float = 0) -> None:
    context.defer(after, state=eval(expression))  # noqa: S307


@task(max_attempts=3, backoff=at_once)
def fail_thrice(*_args: Any, **_kwargs: Any) -> None:
    raise Trouble


@task(max_attempts=3, backoff=at_once, takes_context=True)
def succeed_at_third(context: Context) -> int:
    if context.attempt < 3:
        raise Trouble(f"attempt {context.attempt}")
    return context.attempt


@task(max_attempts=5)
def fail_until_told_otherwise() -> None:
    raise Trouble


@task(
    max_attempts=3,
    backoff=lambda *_: 5,
    retry_on=(Trouble, OSError),
    no_retry_on=(KeyError,),
    atomic=True,
    timeout=timedelta(seconds=30),
    unique_key=lambda: "key",
    on_conflict="replace",
    unique_until="started",
)
def with_everything() -> None:
    """Declared with everything that can be declared, but a schedule: that would be found, and kept, by other tests."""


@task(takes_context=True)
def describe(context: Context, *words: str, n: Any = None) -> dict[str, Any]:
    result = context.task_result
    return {
        "id": result.id,
        "attempt": context.attempt,
        "status": result.status,
        "args": result.args,
        "words": words,
        "workers": len(result.worker_ids),
        "started": result.started_at is not None and result.started_at == result.last_attempted_at,
    }


@task(takes_context=True)
async def describe_async(context: Context) -> list[Any]:
    await asyncio.sleep(0)
    return [context.attempt, context.task_result.id]


@task(priority=7, queue_name="mail")
def send(*_args: Any, **_kwargs: Any) -> None:
    """Declared with values of its own."""


@task
def add_group(name: str) -> int:
    return Group.objects.create(name=name).pk


@task
async def add_group_async(name: str) -> int:
    return (await Group.objects.acreate(name=name)).pk


@task
def add_group_twice(name: str) -> None:
    """The second breaks the transaction that it is in, if it is in one."""
    Group.objects.create(name=name)
    Group.objects.create(name=name)


@task
def break_a_transaction_of_its_own() -> None:
    with transaction.atomic(savepoint=False):
        raise Trouble


@task
def break_a_transaction_and_be_silent() -> str:
    try:
        with connection.cursor() as cursor:
            cursor.execute("select 1/0")
    except DatabaseError:
        return "never mind"
    return "fine"


@task
def commit_durably(name: str) -> None:
    with transaction.atomic(durable=True):
        Group.objects.create(name=name)


@task
def enqueue_next(count: int) -> None:
    if count:
        enqueue_next.enqueue(count - 1)


@task
async def enqueue_next_async(count: int) -> None:
    if count:
        await enqueue_next_async.aenqueue(count - 1)


class Jobs:
    @task
    def inside_a_class() -> None:
        """At module level, says Django; but no path leads from the outside to it."""


def plain_function() -> None:
    """No task."""


under_another_name = task(plain_function)
