"""Tasks of the tests of dependencies."""

from __future__ import annotations

from typing import Any

from django_pgqueue.tasks import batch, task

noted: list[Any] = []


@task
def note(what: Any) -> None:
    noted.append(what)


@task
def fail() -> None:
    message = "not today"
    raise ValueError(message)


@task(takes_context=True, max_attempts=2)
def retried(context: Any) -> None:
    if context.attempt == 1:
        message = "once more"
        raise ValueError(message)


@task
def double(number: int) -> int:
    if number < 0:
        message = f"{number} is too small"
        raise ValueError(message)
    return 2 * number


@task(takes_context=True, max_attempts=2, backoff=lambda *_: 0)
def gathered(context: Any, word: str) -> list[Any]:
    """Fails once, behind what it has been given."""
    found = context.results()
    noted.append(found)
    if context.attempt == 1:
        raise ValueError(word)
    return [word, *map(str, found)]


@task(takes_context=True)
async def gathered_on(context: Any) -> list[Any]:
    return list(await context.aresults())


@task(durable=True)
def gathered_durably(context: Any) -> list[Any]:
    child = double.enqueue_in(context, 50)
    return [context.results(), context.gather([child])]


@task
def wait_in_a_task() -> None:
    with batch() as jobs:
        jobs.enqueue(double, 1)
    jobs.wait()
