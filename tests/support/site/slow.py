"""Jobs that take too long, or too much."""

from __future__ import annotations

import asyncio
import datetime as dt
import gc
import os
import time
from typing import TYPE_CHECKING, Any

import psycopg
from asgiref.sync import sync_to_async
from django.db import DatabaseError, OperationalError, connection, transaction

from django_pgqueue.exceptions import TaskTimeout
from django_pgqueue.models import Attempt
from django_pgqueue.tasks import task
from tests.support.diary import MAX_WAIT_SECONDS, Diary
from tests.support.site.jobs import at_once, write_effect

if TYPE_CHECKING:
    from django_pgqueue.compat import TaskContext

TIMEOUT_SECONDS = 0.4
MANY = 20
"""On a busy machine the second attempt may take too long as well."""


def stick(context: TaskContext[Any, Any], word: str) -> int:
    diary = Diary.of_this_process()
    diary.write(word, attempt=context.attempt)
    diary.wait_for(f"{word}-{context.attempt}")
    diary.write(f"{word}, late", attempt=context.attempt)
    return context.attempt


@task(takes_context=True, timeout=TIMEOUT_SECONDS)
def stay(context: TaskContext[Any, Any], word: str) -> int:
    """Goes on until the test allows its end."""
    return stick(context, word)


@task(takes_context=True, timeout=dt.timedelta(seconds=TIMEOUT_SECONDS), max_attempts=MANY, backoff=at_once)
def stay_at_first(context: TaskContext[Any, Any], word: str) -> int:
    """Only its first attempt takes too long."""
    return stick(context, word) if context.attempt == 1 else context.attempt


def when_allowed(exception: BaseException, task_result: Any) -> float:
    Diary.of_this_process().wait_for("again")
    return 0


@task(takes_context=True, timeout=TIMEOUT_SECONDS, max_attempts=2, backoff=when_allowed)
def stay_and_wait_for_another_try(context: TaskContext[Any, Any], word: str) -> int:
    return stick(context, word) if context.attempt == 1 else context.attempt


@task(takes_context=True, timeout=1.5, max_attempts=2, backoff=at_once, atomic=True)
def write_late(context: TaskContext[Any, Any], word: str) -> int:
    """Each attempt writes before and after it waits for the test."""
    write_effect(f"{word}, early {context.attempt}")
    stick(context, word)
    write_effect(f"{word}, attempt {context.attempt}")
    return context.attempt


@task(timeout=TIMEOUT_SECONDS, max_attempts=MANY, backoff=at_once, takes_context=True)
def lock_and_sleep(context: TaskContext[Any, Any], where: str) -> int:
    """Its first attempt keeps a row's lock, in PostgreSQL or in Python, until somebody ends its session."""
    with transaction.atomic():
        lock_effect()
        with transaction.atomic():  # whose end by an error would not release what was locked before
            if context.attempt == 1 and where == "PostgreSQL":
                with connection.cursor() as cursor:
                    cursor.execute("select pg_sleep(%s)", [MAX_WAIT_SECONDS])
            elif context.attempt == 1:
                stick(context, where)
    return context.attempt


@task(timeout=TIMEOUT_SECONDS, max_attempts=2, backoff=at_once)
async def lock_async() -> None:
    """Waits for a row's lock."""
    await sync_to_async(lock_effect)()


@task(takes_context=True)
async def lock_async_later(context: TaskContext[Any, Any], word: str) -> None:
    """When the test allows it, in the same thread."""
    await hold_async.func(context, word)  # type: ignore[misc]
    await sync_to_async(lock_effect)()


@task(timeout=TIMEOUT_SECONDS)
def never_give_up() -> None:
    """Connects again whatever happens."""
    diary = Diary.of_this_process()
    while not diary.is_allowed("end"):
        try:
            lock_effect()
            time.sleep(0.01)
        except DatabaseError as error:
            diary.write(type(error).__name__)
            connection.close()
        except TaskTimeout as error:
            diary.write(str(error))
            break


@task(takes_context=True)
def sleep_in_a_transaction(context: TaskContext[Any, Any], word: str) -> list[int]:
    """Ends when the test allows it; the process of the server that it had at first, and at the end."""
    with transaction.atomic():
        pids = [backend_pid()]
        hold.func(context, word)
        return [*pids, backend_pid()]


def lock_effect() -> None:
    with connection.cursor() as cursor:
        cursor.execute("update feature_effect set word = 'locked'")


def backend_pid() -> int:
    with connection.cursor() as cursor:
        cursor.execute("select pg_backend_pid()")
        [[pid]] = cursor.fetchall()
        return int(pid)


@task(timeout=TIMEOUT_SECONDS)
async def stay_async(word: str) -> None:
    diary = Diary.of_this_process()
    diary.write(word)
    try:
        await asyncio.sleep(MAX_WAIT_SECONDS)
    except asyncio.CancelledError:
        diary.write(f"{word}, cancelled")
        raise


@task(takes_context=True, timeout=TIMEOUT_SECONDS)
async def swallow(context: TaskContext[Any, Any], word: str) -> int:
    """Does not let itself be cancelled."""
    diary = Diary.of_this_process()
    while not diary.is_allowed(f"{word}-{context.attempt}"):
        try:
            await asyncio.sleep(0.01)
        except asyncio.CancelledError:
            diary.write(f"{word}, cancelled")
    diary.write(f"{word}, late")
    return context.attempt


@task(takes_context=True, timeout=TIMEOUT_SECONDS, max_attempts=MANY, backoff=at_once)
async def block(context: TaskContext[Any, Any], word: str) -> int:
    """Its first attempt lets no other coroutine go on."""
    return stick(context, word) if context.attempt == 1 else context.attempt


@task(takes_context=True, max_attempts=1)
async def hold_async(context: TaskContext[Any, Any], word: str) -> int:
    diary = Diary.of_this_process()
    diary.write(word, attempt=context.attempt)
    while not diary.is_allowed(f"{word}-{context.attempt}"):  # noqa: ASYNC110 -- what it waits for is outside
        await asyncio.sleep(0.01)
    return os.getpid()


@task(takes_context=True)
async def hold_cursor(context: TaskContext[Any, Any], word: str) -> list[int]:
    """Reads one attempt of the history, and the others when the test allows it."""
    ids = []
    async for attempt in Attempt.objects.order_by("id").aiterator(chunk_size=1):
        ids.append(attempt.message_id)
        if len(ids) == 1:
            await hold_async.func(context, word)  # type: ignore[misc]
    return ids


@task(takes_context=True)
async def hold_shared_thread(context: TaskContext[Any, Any], word: str) -> int:
    return await sync_to_async(stick)(context, word)


@task
async def lose_connection() -> None:
    """Fails as a task does whose connection is gone."""
    message = "the connection is lost"
    raise OperationalError(message) from psycopg.OperationalError(message)


@task(timeout=TIMEOUT_SECONDS, max_attempts=MANY, backoff=at_once)
def write_in_time(word: str) -> None:
    write_effect(word)


@task(timeout=TIMEOUT_SECONDS, max_attempts=MANY, backoff=at_once, atomic=True)
def write_in_time_atomically(word: str) -> None:
    write_effect(word)


@task(timeout=1.0)
async def use_shared_thread() -> int:
    return await sync_to_async(os.getpid)()


@task
async def take_the_next() -> None:
    """Of none."""
    await sync_to_async(next)(iter(()))


@task(takes_context=True, timeout=TIMEOUT_SECONDS, max_attempts=MANY, backoff=at_once)
async def lock_in_shared_thread(context: TaskContext[Any, Any], word: str) -> int:
    """The call of its first attempt goes on with a row's lock."""

    def lock() -> int:
        with transaction.atomic():
            lock_effect()
            return stick(context, word) if context.attempt == 1 else context.attempt

    return await sync_to_async(lock)()


@task
async def whoami_async() -> int:
    return os.getpid()


@task(timeout=0.05)
async def nap() -> None:
    await asyncio.sleep(MAX_WAIT_SECONDS)


@task(takes_context=True, timeout=TIMEOUT_SECONDS, max_attempts=MANY, backoff=at_once)
async def stay_async_at_first(context: TaskContext[Any, Any]) -> int:
    if context.attempt == 1:
        await asyncio.sleep(MAX_WAIT_SECONDS)
    return context.attempt


@task(timeout=60)
def time_out_by_itself() -> None:
    raise TimeoutError("of its own")


@task(timeout=60)
async def time_out_by_itself_async() -> None:
    raise TimeoutError("of its own")


@task(timeout=TIMEOUT_SECONDS)
def take_most_of_it(word: str) -> str:
    """Two of them take longer than the timeout of one."""
    Diary.of_this_process().write(word)
    time.sleep(0.6 * TIMEOUT_SECONDS)
    return word


@task(takes_context=True)
def hold(context: TaskContext[Any, Any], word: str) -> int:
    """Goes on until the test allows its end, without a limit."""
    diary = Diary.of_this_process()
    diary.write(word, attempt=context.attempt)
    diary.wait_for(f"{word}-{context.attempt}")
    return os.getpid()


@task
def whoami() -> int:
    return os.getpid()


@task
def frozen() -> int:
    return gc.get_freeze_count()


kept: list[bytes] = []


@task
def keep_memory(megabytes: int) -> int:
    """A leak."""
    kept.append(b"x" * (megabytes * 2**20))
    return os.getpid()


