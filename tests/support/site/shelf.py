"""Small jobs for the tests of testing, development and databases."""

from __future__ import annotations

from typing import Any

from django.contrib.auth.models import Group

from django_pgqueue.tasks import task


def at_once(exception: BaseException, task_result: Any) -> float:
    return 0


@task
def note(*args: Any, **kwargs: Any) -> list[Any]:
    return [list(args), kwargs]


@task(queue_name="mail", priority=5)
def post(letter: int, to: str = "all") -> str:
    return f"{letter} to {to}"


@task
def add_group(name: str) -> int:
    return Group.objects.create(name=name).pk


@task
async def add_group_async(name: str) -> int:
    return (await Group.objects.acreate(name=name)).pk


@task
def pass_on(steps: int) -> str | None:
    """Enqueues itself, and answers what it then sees of that."""
    return str(pass_on.enqueue(steps - 1).status) if steps else None


@task
def fail(text: str = "no network") -> None:
    raise OSError(text)


@task(max_attempts=3, backoff=at_once)
def fail_three_times() -> None:
    raise OSError("again")
