"""Tasks that have moved: each notes its call."""

from __future__ import annotations

import time
from typing import Any

from django.db import connection
from django_tasks import task as django_task
from procrastinate.contrib.django import app

from django_pgqueue.tasks import task

PATH = "tests.management.importing.tasks"
CALLS: list[Any] = []


@task
def note(*args: Any, **kwargs: Any) -> None:
    CALLS.append([list(args), kwargs])


@task
def pay(order: int) -> None:
    CALLS.append(order)


@task(unique_key=lambda n: {"order": n}["number"])
def keyed(n: int) -> None:
    """Its key cannot be made of all arguments."""


@task
def tell(n: int) -> None:
    """Leaves its number in the database, and the first one stays until the test lets it go."""
    with connection.cursor() as cursor:
        cursor.execute("insert into ran (n) values (%s)", [n])
        while n == 0 and not rows("select from let_go"):
            time.sleep(0.02)


def rows(sql: str) -> list[Any]:
    with connection.cursor() as cursor:
        cursor.execute(sql)
        return list(cursor.fetchall())


@app.task(name=f"{PATH}.tell")
def tell_there(n: int) -> None:
    """The task of Procrastinate that has the same path."""
    tell.func(n)


@django_task(backend="old")
def stays(*args: Any, **kwargs: Any) -> None:
    """Its backend has not changed."""


def plain() -> None:
    """Nobody has moved it."""
