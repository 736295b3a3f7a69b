"""The tasks of the tests' workers."""

from __future__ import annotations

import asyncio
import contextlib
import ctypes
import datetime as dt
import os
import signal
import time
from contextvars import ContextVar
from decimal import getcontext
from datetime import timedelta
from typing import TYPE_CHECKING, Any

from asgiref.sync import sync_to_async
from django.db import DatabaseError, connection, transaction
from django.utils import translation

from django_pgqueue import control
from django_pgqueue.tasks import Exponential, task
from tests.support.diary import MAX_WAIT_SECONDS, Diary

if TYPE_CHECKING:
    from collections.abc import Callable

    from django_pgqueue.compat import TaskContext
    from django_pgqueue.durable import DurableContext


@task
def nothing(*_args: Any, **_kwargs: Any) -> None:
    """The shortest job."""


@task
def take(seconds: float) -> None:
    """A job that takes its time."""
    time.sleep(seconds)


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


@task(max_attempts=3, backoff=lambda _, result: 0.5 * (result.attempts - 1))
def crash_the_server() -> None:
    """As a query does that takes all memory, or meets a fault of an extension."""
    Diary.of_this_process().write("crashes")
    with transaction.atomic(), connection.cursor() as cursor:  # behind a pooler, in one session
        cursor.execute("select pg_backend_pid()")
        os.kill(cursor.fetchone()[0], signal.SIGKILL)
        cursor.execute("select 1")


@task
def double_a_number(number: int) -> int:
    return 2 * number


@task(takes_context=True)
def add_up(context: Any, more: int) -> int:
    """Comes after others and adds up what they have returned."""
    total: int = more + sum(context.results())
    return total


@task(atomic=True)
def write_row_and_enqueue(word: str) -> None:
    """In one transaction: the row, the message and the end of this one."""
    write_row.func(word)
    write.enqueue(word)


@task(takes_context=True)
def hold(context: TaskContext[Any, Any], word: str) -> dict[str, Any]:
    """Runs until the test allows the end of this attempt."""
    diary = Diary.of_this_process()
    diary.write(word, attempt=context.attempt)
    diary.wait_for(f"{word}-{context.attempt}")
    return {"attempt": context.attempt}


@task(atomic=True, takes_context=True)
def cancel_and_hold(context: TaskContext[Any, Any], sibling: str, word: str) -> str:
    """Its request to cancel a sibling becomes visible with its own end, which the test allows."""
    answer = control.cancel(sibling)
    hold.func(context, word)
    return str(answer)


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


DEATHS: dict[str, Callable[[], Any]] = {
    "exit": lambda: os._exit(9),
    "leave as if all were well": lambda: os._exit(0),
    "segmentation fault": lambda: ctypes.string_at(0),
    "kill the supervisor too": lambda: os.killpg(0, signal.SIGKILL),
}


@task
def die_by(how: str) -> None:
    Diary.of_this_process().write(how)
    DEATHS[how]()


@task
async def die_in_the_loop() -> None:
    Diary.of_this_process().write("die_in_the_loop")
    os._exit(9)


LANGUAGE: ContextVar[str] = ContextVar("LANGUAGE", default="nobody's")


@task
def remember(word: str) -> list[Any]:
    """Tells what it finds in the context, and leaves something there."""
    found = [LANGUAGE.get(), translation.get_language(), getcontext().prec]
    LANGUAGE.set(word)
    translation.activate("de")
    getcontext().prec = 3
    return found


@task
async def remember_on(word: str) -> list[Any]:
    """The same as a coroutine."""
    return remember.func(word)


@task
def count_queries() -> int:
    """How many queries of earlier jobs Django remembers."""
    before = len(connection.queries_log)
    with connection.cursor() as cursor:
        cursor.execute("select 1")
    return before


@task
def spoil(how: str) -> None:
    """Leaves its connection in a state that no other job should find it in."""
    with connection.cursor() as cursor:
        SPOILERS[how](cursor)


def leave_autocommit_off(cursor: Any) -> None:
    transaction.set_autocommit(autocommit=False)
    cursor.execute("insert into worker_row (word) values ('never committed')")


def leave_atomic_open(cursor: Any) -> None:
    transaction.atomic().__enter__()
    transaction.atomic().__enter__()
    cursor.execute("insert into worker_row (word) values ('never committed')")
    transaction.on_commit(lambda: Diary.of_this_process().write("never called"))


def leave_transaction_broken(cursor: Any) -> None:
    transaction.atomic().__enter__()
    with contextlib.suppress(DatabaseError):
        cursor.execute("select 1 / 0")


def close(_: Any) -> None:
    connection.close()


def close_below_django(_: Any) -> None:
    connection.connection.close()


def close_inside_atomic(_: Any) -> None:
    transaction.atomic().__enter__()
    connection.close()


def be_terminated(cursor: Any) -> None:
    with contextlib.suppress(DatabaseError):
        cursor.execute("select pg_terminate_backend(pg_backend_pid())")


SPOILERS: dict[str, Callable[[Any], None]] = {
    spoiler.__name__: spoiler
    for spoiler in (
        leave_autocommit_off,
        leave_atomic_open,
        leave_transaction_broken,
        close,
        close_below_django,
        close_inside_atomic,
        be_terminated,
    )
}


@task
async def spoil_on(how: str) -> None:
    """The same from a coroutine, in the thread that asgiref has for it."""
    await sync_to_async(spoil.func)(how)


@task
async def write_row_on(word: str) -> None:
    await sync_to_async(write_row.func)(word)


@task
def chain(links: int) -> None:
    """Enqueues the next link."""
    Diary.of_this_process().write("link")
    if links:
        chain.enqueue(links - 1)


@task
def fail(message: str) -> None:
    raise ValueError(message)


present, most_present = 0, 0


@task
async def meet_on(count: int) -> int:
    """Waits until ``count`` are here at the same time, and tells how many there have been at most."""
    global present, most_present  # noqa: PLW0603 -- of the process, which is what they meet in
    present += 1
    most_present = max(most_present, present)
    async with asyncio.timeout(MAX_WAIT_SECONDS):
        while most_present < count:  # noqa: ASYNC110
            await asyncio.sleep(0.01)
    await asyncio.sleep(0.01)
    present -= 1
    return most_present


@task(takes_context=True)
async def fail_once_on(context: TaskContext[Any, Any]) -> dict[str, Any]:
    if context.attempt == 1:
        raise ValueError
    return {
        "attempt": context.attempt,
        "errors": [error.exception_class_path for error in context.task_result.errors],
    }


@task
async def launch_exit() -> None:
    """Starts something that asyncio does not survive."""

    async def leave() -> None:
        raise SystemExit(4)

    background.append(asyncio.create_task(leave()))
    await asyncio.sleep(0.05)


background: list[asyncio.Task[None]] = []


backoff_calls: list[tuple[BaseException, Any]] = []


def backoff_by_argument(exception: BaseException, task_result: Any) -> Any:
    """Does what the task's first argument says."""
    backoff_calls.append((exception, task_result))
    match task_result.args[0]:
        case "raise":
            raise RuntimeError
        case "exit":
            raise SystemExit(7)
        case "text":
            return "soon"
        case "give up":
            return None
        case "two minutes":
            return dt.timedelta(minutes=2)
        case "nan" | "inf" | "-inf" as number:
            return float(number)
        case seconds:
            return seconds


class Patient(Exponential):
    """Waits as its base does, but for two minutes after a ValueError."""

    def __call__(self, exception: BaseException, task_result: Any) -> float:
        return 120.0 if isinstance(exception, ValueError) else super().__call__(exception, task_result)


@task(max_attempts=4, backoff=Patient(base=3600, jitter=0))
def fail_patiently() -> None:
    raise ValueError


class InMinutes(Exponential):
    """Waits for two minutes, as a timedelta."""

    def seconds(self, *, attempt: int) -> Any:
        return dt.timedelta(minutes=2 * attempt)


@task(max_attempts=4, backoff=InMinutes())
def fail_for_minutes() -> None:
    raise ValueError


@task(max_attempts=4, backoff=backoff_by_argument)
def fail_with_backoff(seconds: Any) -> None:
    raise ValueError(seconds)


@task(max_attempts=3, takes_context=True)
def succeed_at(context: TaskContext[Any, Any], attempt: int) -> list[str]:
    """Fails before that attempt, each time with another error."""
    if context.attempt < attempt:
        raise [KeyError, IndexError, OSError][context.attempt - 1](context.attempt)
    return [error.exception_class_path for error in context.task_result.errors]


@task(durable=True)
def hold_between_steps(context: DurableContext, word: str) -> list[str]:
    """Steps, the second of which waits until it may end: a worker can be killed before, in or after it."""
    return [
        context.step("before", note_step, f"{word} before", context.attempt, atomic=True),
        context.step("held", note_step, f"{word} held", context.attempt, True),  # noqa: FBT003 -- it waits
        context.step("after", note_step, f"{word} after", context.attempt, atomic=True),
    ]


def note_step(word: str, attempt: int, waits: bool = False) -> str:  # noqa: FBT001, FBT002
    diary = Diary.of_this_process()
    diary.write(word, attempt=attempt)
    if waits:
        diary.wait_for(f"{word}-{attempt}")
    else:
        write_row.func(word)
    return word


@task(durable=True)
def wait_for_word(context: DurableContext, event: str) -> object:
    """Waits for an event without an end."""
    return context.wait_for_event(event)


@task(durable=True, timeout=2, max_attempts=5, backoff=lambda *_: 0.0)
async def hold_between_steps_on(context: DurableContext, word: str) -> list[str]:
    """As ``hold_between_steps``, in an event loop: the held step is atomic, in a thread that cannot be cancelled."""
    before = await context.astep("before", note_step, f"{word} before", context.attempt, atomic=True)
    held = await context.astep("held", write_and_wait, f"{word} held", context.attempt, atomic=True)
    await context.asleep("nap", timedelta(0))
    return [before, held]


def write_and_wait(word: str, attempt: int) -> str:
    write_row.func(word)
    diary = Diary.of_this_process()
    diary.write(word, attempt=attempt)
    diary.wait_for(f"{word}-{attempt}")
    return word
