"""What the storm's workers run.  Each writes what it does into a diary or a table, and answers who ran it."""

from __future__ import annotations

import asyncio
import contextlib
import multiprocessing
import os
import select
import sys
import time
from functools import cache
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

from django.db import connection, transaction

from django_pgqueue.tasks import task
from tests.proofs.reliability.traps import FOLDER, trap
from tests.support.server_settings import POOLED

if TYPE_CHECKING:
    from collections.abc import Iterator

BACKOFF_SECONDS = 0.4
CHILD = 1_000_000_000_000
"""What is added to a token for the job that a job enqueues."""
MANY = 30
NAME = "STORM_NAME"
"""Of the worker."""
IS_OLD = os.environ.get(NAME) == "old version"
"""Whether the worker runs the last release, which does not stand what was mended since."""
DEPLOY, DEPLOYS = "STORM_DEPLOY", 4
"""Of the worker: how many of the deploys of the application it has seen.  Without it, it has seen all of them."""


class Flaky(Exception):
    """It will be better the next time."""


def wait_a_little(exception: BaseException, task_result: Any) -> float:
    return BACKOFF_SECONDS


@cache
def diary(pid: int) -> IO[bytes]:
    return (Path(os.environ[FOLDER]) / "diary" / f"{os.environ[NAME]} {pid}").open("ab", buffering=0)


def begin(context: Any, token: int) -> dict[str, Any]:
    """Says that this attempt has begun, in a file: whatever becomes of the database, this stays."""
    message = context.message
    line = f"{token} {message.id} {message.attempt} {message.worker} {time.time():.3f}\n"
    diary(os.getpid()).write(line.encode())
    trap("in the handler")
    return {"attempt": message.attempt, "worker": message.worker}


def take_effect(context: Any, token: int) -> None:
    message = context.message
    with connection.cursor() as cursor:
        cursor.execute(
            "insert into storm_effect (message_id, attempt, worker, token) values (%s, %s, %s, %s)",
            [message.id, message.attempt, message.worker, token],
        )
    trap("written")


def remember(token: int, message_id: str) -> None:
    with connection.cursor() as cursor:
        cursor.execute("insert into storm_enqueued (token, message_id) values (%s, %s)", [token, int(message_id)])


def rest(seconds: float) -> None:
    """As time.sleep, which answers with an error where libfaketime is loaded."""
    select.select([], [], [], seconds)


@task(takes_context=True, max_attempts=MANY, backoff=wait_a_little)
def note(context: Any, token: int) -> dict[str, Any]:
    """Plain: its effect is committed by itself, and may happen again."""
    who = begin(context, token)
    take_effect(context, token)
    return who


@task(takes_context=True, max_attempts=MANY, backoff=wait_a_little)
def glance(context: Any, token: int) -> dict[str, Any]:
    """Nothing but its diary: what most of the jobs are, so that there are many."""
    return begin(context, token)


@task(takes_context=True, max_attempts=MANY, backoff=wait_a_little)
async def glance_on(context: Any, token: int) -> dict[str, Any]:
    who = begin(context, token)
    await asyncio.sleep(0)
    return who


@task(atomic=True, takes_context=True, max_attempts=MANY, backoff=wait_a_little)
def pay(context: Any, token: int) -> dict[str, Any]:
    """Atomic: its effect happens exactly once."""
    who = begin(context, token)
    take_effect(context, token)
    if token % 10 == 0 and token < CHILD:
        remember(token + CHILD, note.enqueue(token + CHILD).id)
    return who


@task(atomic=True, takes_context=True, max_attempts=MANY, backoff=wait_a_little)
def pay_late(context: Any, token: int) -> dict[str, Any]:
    """Writes, and then fails the first times."""
    who = begin(context, token)
    take_effect(context, token)
    if context.attempt < 3:
        raise Flaky
    return who


@task(takes_context=True, max_attempts=MANY, backoff=wait_a_little)
def flaky(context: Any, token: int) -> dict[str, Any]:
    who = begin(context, token)
    if context.attempt < 3:
        raise Flaky
    return who


@task(takes_context=True)
def fragile(context: Any, token: int) -> dict[str, Any]:
    """One attempt only, and some fail."""
    who = begin(context, token)
    if token % 3 == 0:
        raise Flaky
    return who


@task(takes_context=True, max_attempts=MANY)
def patient(context: Any, token: int) -> dict[str, Any]:
    who = begin(context, token)
    looks = (context.state or {"looks": 0})["looks"]
    if looks < 2:
        context.defer(0.1, state={"looks": looks + 1})
    return who


@task(atomic=True, takes_context=True, max_attempts=MANY, backoff=wait_a_little)
def pay_slowly(context: Any, token: int, seconds: float) -> dict[str, Any]:
    who = begin(context, token)
    take_effect(context, token)
    rest(seconds)
    return who


@task(takes_context=True, max_attempts=MANY, backoff=wait_a_little)
def take(context: Any, token: int, seconds: float) -> dict[str, Any]:
    who = begin(context, token)
    rest(seconds)
    return who


@task(takes_context=True, max_attempts=MANY, backoff=wait_a_little)
def wait_for_the_end(context: Any, token: int) -> dict[str, Any]:
    """Its first attempt ends with its worker."""
    who = begin(context, token)
    if context.attempt == 1:
        rest(60)
    return who


@task(takes_context=True, max_attempts=MANY, backoff=wait_a_little)
async def take_on(context: Any, token: int, seconds: float) -> dict[str, Any]:
    who = begin(context, token)
    await asyncio.sleep(seconds)
    return who


def by_key(token: int, key: str) -> str:
    return key


@task(takes_context=True, max_attempts=MANY, unique_key=by_key)
def alone(context: Any, token: int, key: str) -> dict[str, Any]:
    return begin(context, token)


@task(
    takes_context=True, max_attempts=MANY, unique_key=by_key, unique_until="started",
)  # fmt: skip
def alone_until_it_starts(context: Any, token: int, key: str) -> dict[str, Any]:
    return begin(context, token)


@task(takes_context=True, max_attempts=MANY)
def tick(context: Any) -> dict[str, Any]:
    """What schedules enqueue: no token, for nobody asked for it."""
    return begin(context, -context.message.id)


# What is wrong with these is their own fault.


@task(takes_context=True, max_attempts=3, backoff=wait_a_little)
def leak(context: Any, token: int) -> dict[str, Any]:
    """Leaves a transaction open, which must not swallow the next job's writes."""
    who = begin(context, token)
    transaction.set_autocommit(False)
    with connection.cursor() as cursor:
        cursor.execute("select 1")
    return who


@task(takes_context=True, max_attempts=3, backoff=wait_a_little)
def close(context: Any, token: int) -> dict[str, Any]:
    who = begin(context, token)
    connection.ensure_connection()
    connection.connection.close()
    return who


@task(atomic=True, takes_context=True, max_attempts=3, backoff=wait_a_little)
def pay_and_close(context: Any, token: int) -> dict[str, Any]:
    """Closes the connection that its own transaction is in."""
    who = begin(context, token)
    take_effect(context, token)
    if context.attempt == 1:
        connection.connection.close()
    return who


@task(takes_context=True, max_attempts=2, timeout=0.5, backoff=wait_a_little)
def hang(context: Any, token: int) -> dict[str, Any]:
    """Does not care that its time is up."""
    who = begin(context, token)
    rest(3)
    return who


@task(atomic=True, takes_context=True, max_attempts=2, timeout=0.5, backoff=wait_a_little)
def pay_and_hang(context: Any, token: int) -> dict[str, Any]:
    who = begin(context, token)
    take_effect(context, token)
    rest(2)
    return who


@task(takes_context=True, max_attempts=2)
def leave(context: Any, token: int) -> None:
    begin(context, token)
    os._exit(3)


@task(takes_context=True, max_attempts=2, backoff=wait_a_little)
def eat(context: Any, token: int) -> None:
    begin(context, token)
    raise MemoryError


@task(takes_context=True, max_attempts=2, backoff=wait_a_little)
def dig(context: Any, token: int) -> None:
    begin(context, token)

    def deeper() -> None:
        deeper()

    deeper()


@task(takes_context=True, max_attempts=2, backoff=wait_a_little)
def stop(context: Any, token: int) -> None:
    begin(context, token)
    sys.exit(4)


@task(atomic=True, takes_context=True, max_attempts=2, backoff=wait_a_little)
def spoil(context: Any, token: int) -> dict[str, Any]:
    """Goes on after an error of the database, in a transaction that can only be rolled back."""
    who = begin(context, token)
    take_effect(context, token)
    try:
        with connection.cursor() as cursor:
            cursor.execute("select 1 / 0")
    except Exception:  # noqa: BLE001
        pass
    return who


@task(takes_context=True, max_attempts=3, backoff=wait_a_little)
def fork(context: Any, token: int) -> dict[str, Any]:
    """Its child leaves as a program does."""
    who = begin(context, token)
    child = os.fork()
    if child == 0:
        sys.exit(5)
    os.waitpid(child, 0)
    return who


@task(takes_context=True, max_attempts=MANY, backoff=wait_a_little)
def pool(context: Any, token: int) -> dict[str, Any]:
    who = begin(context, token)
    with multiprocessing.get_context("fork").Pool(2) as children:
        children.map(abs, range(10))
    return who


@task(takes_context=True, max_attempts=2, backoff=wait_a_little)
def mumble(context: Any, token: int) -> None:
    begin(context, token)
    raise SyntaxError("bad", ("file.py", 1, 5, b"text"))  # type: ignore[arg-type]


@task(takes_context=True, max_attempts=2, timeout=0.3, backoff=wait_a_little)
async def block(context: Any, token: int) -> dict[str, Any]:
    """Keeps its event loop for longer than its time."""
    who = begin(context, token)
    rest(7)
    return who


@task(takes_context=True, max_attempts=2, timeout=0.3, backoff=wait_a_little)
async def cling(context: Any, token: int) -> dict[str, Any]:
    """Does not let itself be cancelled."""
    who = begin(context, token)
    for _ in range(10):
        with contextlib.suppress(asyncio.CancelledError):
            await asyncio.sleep(0.7)
    return who


@task(takes_context=True, max_attempts=3, backoff=wait_a_little)
def unsettle(context: Any, token: int) -> dict[str, Any]:
    """Leaves settings that the next job on this connection must not find; behind PgBouncer that is not for a job."""
    who = begin(context, token)
    if POOLED:
        return who
    with connection.cursor() as cursor:
        cursor.execute("set search_path = pg_catalog")
        cursor.execute("set statement_timeout = 1")
    return who


@task(takes_context=True, max_attempts=3, backoff=wait_a_little)
def mute(context: Any, token: int) -> dict[str, Any]:
    """Leaves the driver so that the writes of the next job on this connection would be rolled back."""
    who = begin(context, token)
    if not IS_OLD:
        connection.ensure_connection()
        connection.connection.autocommit = False
    return who


def never(exception: BaseException, task_result: Any) -> float:
    if not IS_OLD:
        rest(600)
    return BACKOFF_SECONDS


@task(takes_context=True, max_attempts=2, timeout=0.5, backoff=never)
def hang_twice(context: Any, token: int) -> dict[str, Any]:
    """Its time is up, and its backoff does not return."""
    who = begin(context, token)
    rest(2)
    return who


# What the deploys have brought: each knows what those before it have brought, too.  Deploy 2 has removed a task and a
# parameter, which the next one, the last, brings back: so all ends in the end.

deploy = int(os.environ.get(DEPLOY, DEPLOYS - 1))


@contextlib.contextmanager
def unchanged() -> Iterator[None]:
    """As a decorator it takes any arguments, and hands them over, as transaction.atomic does."""
    yield


if deploy >= 1:

    @task(takes_context=True, max_attempts=MANY, backoff=wait_a_little)
    def new_in_1(context: Any, token: int) -> dict[str, Any]:
        return begin(context, token)


if deploy >= 2:

    @task(takes_context=True, max_attempts=MANY, backoff=wait_a_little)
    def new_in_2(context: Any, token: int) -> dict[str, Any]:
        return begin(context, token)

    @task(takes_context=True, max_attempts=MANY, backoff=wait_a_little)
    def grown(context: Any, token: int, more: int = 0) -> dict[str, Any]:
        return begin(context, token)

else:

    @task(takes_context=True, max_attempts=MANY, backoff=wait_a_little)
    def grown(context: Any, token: int) -> dict[str, Any]:
        return begin(context, token)


if deploy != 2:

    @task(takes_context=True, max_attempts=MANY, backoff=wait_a_little)
    def removed_in_2(context: Any, token: int) -> dict[str, Any]:
        return begin(context, token)

    @task(takes_context=True, max_attempts=MANY, backoff=wait_a_little)
    @unchanged()
    def shrunk_in_2(context: Any, token: int, more: int = 0) -> dict[str, Any]:
        return begin(context, token)

else:

    @task(takes_context=True, max_attempts=MANY, backoff=wait_a_little)
    @unchanged()
    def shrunk_in_2(context: Any, token: int) -> dict[str, Any]:
        return begin(context, token)


if deploy >= 3:

    @task(takes_context=True, max_attempts=MANY, backoff=wait_a_little)
    def new_in_3(context: Any, token: int) -> dict[str, Any]:
        return begin(context, token)


BROUGHT: dict[str, tuple[set[int], list[int]]] = {
    "glance": ({0, 1, 2, 3}, []), "new_in_1": ({1, 2, 3}, []), "new_in_2": ({2, 3}, []), "grown": ({2, 3}, [5]),
    "removed_in_2": ({0, 1, 3}, []), "shrunk_in_2": ({0, 1, 3}, [5]), "new_in_3": ({3}, []),
}  # fmt: skip
"""By task: the deploys that enqueue it like that, and its arguments after the token."""

INNOCENT = (
    "note", "glance", "glance_on", "pay", "pay_late", "flaky", "patient", "pay_slowly", "take", "take_on", "alone",
    "alone_until_it_starts", "wait_for_the_end", "new_in_1", "new_in_2", "new_in_3", "grown", "removed_in_2",
    "shrunk_in_2", "follow", "follow_child",
)  # fmt: skip
"""The tasks that succeed in the end, whatever is done to their workers, their server and their neighbours."""
ATOMIC = ("pay", "pay_late", "pay_slowly", "pay_and_close", "pay_and_hang", "spoil")
"""The tasks whose effects must happen exactly once."""
