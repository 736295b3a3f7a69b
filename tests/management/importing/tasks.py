"""Tasks that have moved: each notes its call."""

from __future__ import annotations

from typing import Any

from django_tasks import task as django_task

from django_pgqueue.tasks import task

CALLS: list[Any] = []


@task
def note(*args: Any, **kwargs: Any) -> None:
    CALLS.append([list(args), kwargs])


@task
def pay(order: int) -> None:
    CALLS.append(order)


@django_task(backend="old")
def stays(*args: Any, **kwargs: Any) -> None:
    """Its backend has not changed."""


def plain() -> None:
    """Nobody has moved it."""
