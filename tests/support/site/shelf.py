"""Small jobs for the tests of testing, development and databases."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from django.contrib.auth.models import Group
from django.db import transaction

from django_pgqueue.durable import emit
from django_pgqueue.tasks import task

if TYPE_CHECKING:
    from django_pgqueue.durable import DurableContext


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
def add_another_group(name: str) -> None:
    Group.objects.create(name=f"{name} {Group.objects.count()}")


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


@task(durable=True)
def steps_in_a_block_of_the_other(context: DurableContext) -> None:
    with transaction.atomic(using="default"):
        context.step("add", add_group.func, "of a step")


@task
def announce(name: str) -> None:
    emit(name)
    emit(f"{name}, here", database="default")
