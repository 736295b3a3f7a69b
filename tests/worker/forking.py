"""Tasks that start processes of their own."""

from __future__ import annotations

import asyncio
import gc
import multiprocessing
import os
import signal
import subprocess
import sys
import time
from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor
from typing import TYPE_CHECKING, Any

import psycopg
from asgiref.sync import sync_to_async
from django.db import connection

from django_pgqueue.tasks import task
from tests.support.diary import MAX_WAIT_SECONDS, Diary
from tests.support.site.tasks import write

if TYPE_CHECKING:
    from collections.abc import Callable
    from multiprocessing.synchronize import Event

ENDS: dict[str, int] = {"return": 0, "exit": 3, "exit with a word": 1, "raise": 1, "exit at once": 4}
"""How a forked process comes back out of its task, and the exit status that it has then."""


def come_back(how: str) -> None:
    match how:
        case "exit":
            sys.exit(3)
        case "exit with a word":
            sys.exit("a word")
        case "raise":
            raise ValueError(how)
        case "exit at once":
            os._exit(4)


def exit_code(pid: int) -> int:
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])


def fork_and_come_back(how: str) -> int:
    """The exit code of the process that was forked."""
    pid = os.fork()
    if pid == 0:
        come_back(how)
        return 0
    return exit_code(pid)


@task
def fork(how: str) -> int:
    return fork_and_come_back(how)


@task(atomic=True)
def fork_atomically(how: str) -> int:
    with connection.cursor() as cursor:
        cursor.execute("insert into worker_row (word) values (%s)", [how])
    return fork_and_come_back(how)


@task
async def fork_on(how: str) -> int:
    pid = os.fork()
    if pid == 0:
        come_back(how)
        return 0
    return await asyncio.to_thread(exit_code, pid)


@task
async def fork_and_await() -> int:
    """The process that is forked goes back to the event loop."""
    pid = os.fork()
    if pid == 0:
        await asyncio.sleep(0)
        return 0
    return await asyncio.to_thread(exit_code, pid)


@task
async def fork_in_the_thread_of_databases(how: str) -> int:
    return int(await sync_to_async(fork_and_come_back)(how))


@task
def fork_in_a_thread_of_its_own(how: str) -> int:
    with ThreadPoolExecutor(1) as threads:
        return threads.submit(fork_and_come_back, how).result()


@task
async def write_in_steps(word: str, steps: int) -> None:
    for n in range(steps):
        Diary.of_this_process().write(f"{word}-{n}")
        await asyncio.sleep(0.001)


@task
def fork_among_many(word: str) -> None:
    """What made ghosts that took other jobs."""
    write.func(word)
    pid = os.fork()
    if pid == 0:
        sys.exit(0)
    os.waitpid(pid, 0)


def run_and_wait(runs: Event) -> None:
    runs.set()
    time.sleep(MAX_WAIT_SECONDS)


@task
def end_a_process(number: int, *, once_it_runs: bool) -> int:
    """The exit code of a process that somebody asks to end."""
    context = multiprocessing.get_context("fork")
    runs = context.Event()
    process = context.Process(target=run_and_wait, args=[runs])
    process.start()
    if once_it_runs:
        runs.wait(MAX_WAIT_SECONDS)
    os.kill(process.pid or 0, number)
    waiting_until = time.monotonic() + MAX_WAIT_SECONDS / 2
    # Not join(): a process that starts in another slot collects the exit codes of all, and until it has noted this one
    # there is none, although the process has ended.
    while (code := process.exitcode) is None and time.monotonic() < waiting_until:
        time.sleep(0.01)
    if code is None:
        process.kill()
        raise TimeoutError(number)
    return code


@task
def fork_and_interrupt(number: int = signal.SIGINT) -> int:
    """The exit code of a process that is interrupted in the middle of what it does."""
    pid = os.fork()
    if not pid:
        time.sleep(MAX_WAIT_SECONDS)
        os._exit(0)
    os.kill(pid, number)
    return exit_code(pid)


@task
def interrupt_a_program(number: int = signal.SIGINT) -> int:
    """The exit code of another program that somebody interrupts."""
    with subprocess.Popen(["sleep", f"{MAX_WAIT_SECONDS / 2:g}"]) as program:
        program.send_signal(number)
        return program.wait()


def square(n: int) -> int:
    return n * n


@task
def use_a_pool(method: str, size: int) -> list[int]:
    with multiprocessing.get_context(method).Pool(size) as pool:
        return pool.map(square, range(5))


@task
def leave_a_pool(word: str) -> None:
    """Runs until the worker gives it up."""
    pool = multiprocessing.get_context("fork").Pool(2)
    Diary.of_this_process().write(word, children=pool.map(own_pid, range(8)))
    time.sleep(MAX_WAIT_SECONDS)


def own_pid(_: int) -> int:
    return os.getpid()


def backend() -> int:
    """The server's process that this one talks to."""
    with connection.cursor() as cursor:
        cursor.execute("select pg_backend_pid()")
        [pid] = cursor.fetchone()
    return int(pid)


def raises(do: Callable[[], Any]) -> bool:
    try:
        do()
    except Exception:  # noqa: BLE001
        return True
    return False


def use_djangos_connection(_: Any) -> int:
    return 0 if backend() else 1


def close_djangos_connection(_: Any) -> int:
    connection.close()
    return 0


def close_the_drivers_connection(drivers: Any) -> int:
    drivers.close()
    return 0


def use_the_drivers_connection(drivers: Any) -> int:
    return 0 if raises(lambda: drivers.execute("select 1")) else 1


def close_all_that_is_there(_: Any) -> int:
    """The worker's own connection among them."""
    for found in gc.get_objects():
        if issubclass(type(found), psycopg.Connection):
            found.close()
    return 0


def collect_all(_: Any) -> int:
    gc.collect()
    return 0


def send_a_signal_to_itself(_: Any) -> int:
    os.kill(os.getpid(), signal.SIGTERM)
    return 0


IN_A_CHILD: dict[str, tuple[Callable[[Any], int], int]] = {
    "uses Django's connection": (use_djangos_connection, 0),
    "closes Django's connection": (close_djangos_connection, 0),
    "uses the driver's connection": (use_the_drivers_connection, 0),
    "closes the driver's connection": (close_the_drivers_connection, 0),
    "closes every connection": (close_all_that_is_there, 0),
    "collects": (collect_all, 0),
    "is terminated": (send_a_signal_to_itself, -signal.SIGTERM),
}


@task
def with_a_connection(what: str) -> list[Any]:
    """Whether the connection was this process's own before and after, and how the forked process ended."""
    before, drivers = backend(), connection.connection
    pid = os.fork()
    if pid == 0:
        sys.exit(IN_A_CHILD[what][0](drivers))
    code = exit_code(pid)
    return [before == backend(), code]


@task
def hold_a_lock_in_a_child(word: str) -> None:
    """Leaves a process behind that outlives its worker, which has a transaction open."""
    with connection.cursor() as cursor:
        cursor.execute("begin")
        cursor.execute("insert into worker_row (word) values (%s)", [word])
        cursor.execute("select pg_backend_pid()")
        [server] = cursor.fetchone()
    pid = os.fork()
    if pid == 0:
        time.sleep(MAX_WAIT_SECONDS)
        os._exit(0)
    Diary.of_this_process().write(word, child=pid, server=server)
    time.sleep(MAX_WAIT_SECONDS)


executors: list[ProcessPoolExecutor] = []


@task
def keep_an_executor(method: str) -> list[int]:
    """Leaves its processes to the next jobs of this process, as a module that has one executor does."""
    if not executors:
        executors.append(ProcessPoolExecutor(2, mp_context=multiprocessing.get_context(method)))
    return list(executors[0].map(own_pid, range(8)))


@task
def wait_for_an_executor(word: str) -> None:
    """Runs until the worker gives it up, and so does its process."""
    executor = ProcessPoolExecutor(1, mp_context=multiprocessing.get_context("fork"))
    Diary.of_this_process().write(word, children=[executor.submit(os.getpid).result()])
    executor.submit(time.sleep, MAX_WAIT_SECONDS).result()
