"""Drain: runs jobs inside of a test."""

from __future__ import annotations

from asyncio import _get_running_loop, _set_running_loop
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Protocol

from asgiref.sync import async_to_sync, sync_to_async
from django.db import connections
from django.utils.asyncio import async_unsafe
from psycopg.pq import TransactionStatus

from django_pgqueue import functions
from django_pgqueue.backend import results
from django_pgqueue.backend.lazy_result import know
from django_pgqueue.backend.pgqueue import PgQueueBackend
from django_pgqueue.compat import DEFAULT_TASK_BACKEND_ALIAS, AnyTaskResult, task_backends
from django_pgqueue.durable.steps import open_blocks
from django_pgqueue.exceptions import PgQueueError
from django_pgqueue.tasks import registry
from django_pgqueue.values.times import EpochDateTime, microseconds
from django_pgqueue.worker.record import record
from django_pgqueue.worker.run.execution import Execution
from django_pgqueue.worker.run.progress import DirectReports

if TYPE_CHECKING:
    import datetime as dt
    from collections.abc import Iterator, Sequence

    from django.dispatch import Signal

WORKER = "testing.drain"
MAX_MOVES = 1_000


class MovableClock(Protocol):
    def move_to(self, at: dt.datetime) -> None: ...


@async_unsafe("drain() runs queries, which async code cannot: await adrain().")
def drain(
    queues: Sequence[str] | None = None,
    *,
    limit: int | None = None,
    backend: str = DEFAULT_TASK_BACKEND_ALIAS,
    clock: MovableClock | None = None,
) -> list[AnyTaskResult]:
    """Runs the ready jobs of ``queues`` (None: of all queues) at once, and returns their results in the same order.

    The jobs run one after the other in this thread, on Django's connection and so inside of the test's transaction.
    Jobs that they enqueue and retries that have become due run as well, up to ``limit`` attempts.  Jobs that are
    scheduled for later stay in the queue: move the ``clock``.

    ``clock``: that of ``with clock() as now``.  When nothing is ready, it moves to the end of the next sleep or
    time-out of a durable task of ``queues``, until none of them waits for a time.  A task that waits for an event
    without a time-out, or for a decision, stays suspended.  Raises PgQueueError when it has moved the clock 1,000
    times: a task sleeps in an endless loop.  ``limit`` ends such a test sooner, without an error.

    >>> order = place_order()
    ... drain(["mail"])
    ... assert order.receipt  # doctest: +SKIP
    """
    if isinstance(queues, str):
        message = f"queues is {queues!r}, and each letter of it would be a queue: use [{queues!r}]."
        raise PgQueueError(message)
    tasks = backend_of(backend)
    registry.autodiscover()
    connection = connections[tasks.settings.database]
    finished: list[AnyTaskResult] = []
    moves = 0
    while limit is None or len(finished) < limit:
        claimed = functions.message_dequeue(
            connection, queues=queues, lock_ms=tasks.settings.lock_ms, worker=WORKER, tasks=True
        ) or functions.quarantine_dequeue(
            connection, queues=queues, exclude_queues=(), lock_ms=tasks.settings.lock_ms, worker=WORKER
        )
        if not claimed and _settle(connection):
            continue
        if not claimed and clock is not None and (wakes := functions.step_wakes_at(connection, queues)) is not None:
            if (moves := moves + 1) > MAX_MOVES:
                message = (
                    f"drain() has moved the clock {MAX_MOVES:,} times, to {EpochDateTime.from_ms(wakes.at)}, and "
                    f"message {wakes.id} ({wakes.task}) sleeps again: pass limit=, or end the loop of this task."
                )
                raise PgQueueError(message)
            clock.move_to(EpochDateTime.from_ms(wakes.at))
            continue
        if not claimed:
            break
        job = InsideTheTest(
            claimed[0],
            backend=tasks,
            clock=lambda: microseconds(functions.now(connection)),
            reports=DirectReports(connection),
        )
        with in_a_plain_thread():
            end = job.run()
        record(connection, [end], worker=WORKER)
        finished.append(results.load(str(end.message.id), backend=tasks))
    return finished


@contextmanager
def in_a_plain_thread() -> Iterator[None]:
    """Lets a job find no event loop, as in a worker.  Playwright leaves one in the thread of the test."""
    loop = _get_running_loop()
    if loop is None:
        yield
        return
    of_the_test = connections.all()  # Django has others in a thread without a loop
    _set_running_loop(None)
    others = connections.all(initialized_only=True)
    try:
        for connection in of_the_test:
            connections[connection.alias] = connection
        yield
    finally:
        for connection in of_the_test:
            del connections[connection.alias]
        for connection in others:
            connections[connection.alias] = connection
        _set_running_loop(loop)


def _settle(connection: Any) -> bool:
    """Whether a message need not wait for others any more.  One call looks at a part of those that it waits for."""
    left = None
    while not functions.message_settle(connection):
        before, left = left, functions.message_settling(connection)
        if left is None or left == before:  # others have locked it
            return False
    return True


def backend_of(alias: str) -> PgQueueBackend:
    """Returns the backend with this alias.  Raises PgQueueError if it is not one of this package."""
    found = task_backends[alias]
    if not isinstance(found, PgQueueBackend):
        message = (
            f"TASKS[{alias!r}] is of the class {type(found).__qualname__}, which keeps no jobs in PostgreSQL: drain(), "
            "inline() and the assertions find none. Use PgQueueBackend in this test"
            + (f", or look into task_backends[{alias!r}].results." if hasattr(found, "results") else ".")
        )
        raise PgQueueError(message)
    return found


async def adrain(
    queues: Sequence[str] | None = None,
    *,
    limit: int | None = None,
    backend: str = DEFAULT_TASK_BACKEND_ALIAS,
    clock: MovableClock | None = None,
) -> list[AnyTaskResult]:
    """The ``async`` variant of ``drain``."""
    return await sync_to_async(drain)(queues, limit=limit, backend=backend, clock=clock)


class InsideTheTest(Execution):
    """Execution inside of the test's transaction, which must outlive the job's errors.  A worker's job has its own.

    After an error that breaks a transaction, everything that the job wrote in it is rolled back, and the test goes on.
    """

    __slots__ = ()

    @property
    def gives_back(self) -> bool:
        """A test has no other worker, and wants to see the error."""
        return False

    def call(self) -> Any:
        self.blocks = open_blocks()
        opened = [
            (connection, savepoint)
            for connection in connections.all(initialized_only=True)
            if connection.in_atomic_block and (savepoint := connection.savepoint())
        ]
        try:
            if registry.is_async(self.message.task or ""):
                know(self.result)  # in this session, because code in an event loop would have to open another one
                return async_to_sync(self.acall)()  # with its timeout
            return super().call()
        finally:
            for connection, savepoint in opened:
                _end(connection, savepoint, atomic=getattr(self.task, "atomic", False))

    def clean_up_after_receivers(self, signal: Signal) -> None:
        """Leaves the open transaction alone: it is the test's."""


def _end(connection: Any, savepoint: str, *, atomic: bool) -> None:
    if not is_broken(connection):
        connection.savepoint_commit(savepoint)
    elif not atomic:  # an atomic task breaks its own transaction, here as in a worker
        connection.set_rollback(False)
        connection.savepoint_rollback(savepoint)


def is_broken(connection: Any) -> bool:
    """Whether PostgreSQL or Django refuses every statement until the transaction is rolled back."""
    if connection.needs_rollback:
        return True
    if connection.vendor != "postgresql" or connection.connection is None:  # it has been closed
        return False
    return bool(connection.connection.info.transaction_status == TransactionStatus.INERROR)
