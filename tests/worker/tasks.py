"""What the tests' workers run."""

from __future__ import annotations

import asyncio
import os
from typing import TYPE_CHECKING, Any

from django.db import connection

from django_pgqueue.tasks import task
from tests.worker.diary import Diary

if TYPE_CHECKING:
    from django_pgqueue.compat import TaskContext


@task
def nothing() -> None:
    """The shortest job."""


@task
def write(word: str) -> str:
    """Leaves a word in the diary."""
    Diary.of_this_process().write(word)
    return word


@task
def write_row(word: str) -> None:
    """Leaves a row in the database."""
    with connection.cursor() as cursor:
        cursor.execute("insert into worker_row (word) values (%s)", [word])


@task(takes_context=True)
def hold(context: TaskContext[Any, Any], word: str) -> dict[str, Any]:
    """Runs until the test allows the end of this attempt."""
    diary = Diary.of_this_process()
    diary.write(word, attempt=context.attempt)
    diary.wait_for(f"{word}-{context.attempt}")
    return {"attempt": context.attempt}


@task(takes_context=True)
async def hold_on(context: TaskContext[Any, Any], word: str) -> dict[str, Any]:
    """The same as a coroutine."""
    diary = Diary.of_this_process()
    diary.write(word, attempt=context.attempt)
    while not diary.is_allowed(f"{word}-{context.attempt}"):  # noqa: ASYNC110 -- what it waits for is outside
        await asyncio.sleep(0.01)
    return {"attempt": context.attempt}


@task
def die(word: str) -> None:
    """Takes its process with it."""
    Diary.of_this_process().write(word)
    os._exit(9)
