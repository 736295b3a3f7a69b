"""Tasks of the tests of dependencies."""

from __future__ import annotations

from typing import Any

from django_pgqueue.tasks import task

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
