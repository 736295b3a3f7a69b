"""Tools for the tests of projects that use the queue."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Self

from asgiref.sync import sync_to_async
from django.db import connections
from psycopg.pq import TransactionStatus

from django_pgqueue import functions, registry, results
from django_pgqueue.backend import PgQueueBackend
from django_pgqueue.compat import DEFAULT_TASK_BACKEND_ALIAS, AnyTaskResult, task_backends
from django_pgqueue.exceptions import PgQueueError
from django_pgqueue.fields import to_epoch_ms
from django_pgqueue.worker.execution import Execution
from django_pgqueue.worker.record import record
from django_pgqueue.worker.reports import DirectReports

if TYPE_CHECKING:
    import datetime as dt
    from collections.abc import Sequence

WORKER = "testing.drain"


def drain(
    queues: Sequence[str] | None = None, *, limit: int | None = None, backend: str = DEFAULT_TASK_BACKEND_ALIAS
) -> list[AnyTaskResult]:
    """Runs what is ready in ``queues`` (None: in all of them), here and now, and answers the results in that order.

    The jobs run one after the other in this thread, on Django's connection and so inside of the test's transaction.
    What they enqueue, and retries that have become due, run as well, up to ``limit`` attempts.  What is scheduled for
    later stays: move the ``clock``.

    >>> order = place_order()
    ... drain(["mail"])
    ... assert order.receipt  # doctest: +SKIP
    """
    if isinstance(queues, str):
        message = f"queues is {queues!r}, and each letter of it would be a queue: say [{queues!r}]."
        raise PgQueueError(message)
    tasks = task_backends[backend]
    if not isinstance(tasks, PgQueueBackend):
        message = f"TASKS[{backend!r}] is a {type(tasks).__qualname__}: it keeps no jobs in PostgreSQL to be drained."
        raise PgQueueError(message)
    registry.autodiscover()
    connection = connections[tasks.settings.database]
    finished: list[AnyTaskResult] = []
    while limit is None or len(finished) < limit:
        claimed = functions.message_dequeue(
            connection, queues=queues, lock_ms=tasks.settings.lock_ms, worker=WORKER, tasks=True
        )
        if not claimed and functions.message_settle(connection, force=True):
            continue
        if not claimed:
            break
        end = InsideTheTest(
            claimed[0],
            backend=tasks,
            clock=lambda: functions.now(connection),
            reports=DirectReports(connection),
        ).run()
        record(connection, [end], worker=WORKER)
        finished.append(results.load(str(end.message.id), backend=tasks))
    return finished


async def adrain(
    queues: Sequence[str] | None = None, *, limit: int | None = None, backend: str = DEFAULT_TASK_BACKEND_ALIAS
) -> list[AnyTaskResult]:
    """The ``async`` variant of ``drain``."""
    return await sync_to_async(drain)(queues, limit=limit, backend=backend)


class Clock:
    """The queue's clock of this database session, to be moved by tests instead of waiting."""

    at: dt.datetime

    def __init__(self, start: dt.datetime | None, database: str) -> None:
        self.database = database
        self._start = start

    def __enter__(self) -> Self:
        self.move_to(self._start or functions.now(connections[self.database]))
        return self

    def __exit__(self, *_: object) -> None:
        # A broken transaction takes no statement, and its end takes the setting back.
        if not _is_broken(connections[self.database]):
            _set(self.database, "")

    async def __aenter__(self) -> Self:
        return await sync_to_async(self.__enter__)()

    async def __aexit__(self, *_: object) -> None:
        await sync_to_async(self.__exit__)()

    def move_to(self, at: dt.datetime) -> None:
        _set(self.database, str(to_epoch_ms(at)))
        self.at = at

    def advance(self, by: dt.timedelta) -> None:
        self.move_to(self.at + by)

    async def amove_to(self, at: dt.datetime) -> None:
        """The ``async`` variant of ``move_to``."""
        await sync_to_async(self.move_to)(at)

    async def aadvance(self, by: dt.timedelta) -> None:
        """The ``async`` variant of ``advance``."""
        await sync_to_async(self.advance)(by)


def clock(at: dt.datetime | None = None, *, database: str = "default") -> Clock:
    """Stops the queue's clock of this database session at ``at`` (default: now), to be moved from there.

    >>> with clock() as now:
    ...     remind.using(run_after=timedelta(hours=1)).enqueue()
    ...     now.advance(timedelta(hours=1))
    ...     drain()  # doctest: +SKIP
    """
    return Clock(at, database)


class InsideTheTest(Execution):
    """A worker's job has its own transactions; here it is inside of the test's, which must outlive the job's errors.

    After an error that breaks a transaction everything that the job wrote in it is rolled back, and the test goes on.
    """

    __slots__ = ()

    def _call(self) -> Any:
        opened = [
            (connection, savepoint)
            for connection in connections.all(initialized_only=True)
            if connection.in_atomic_block and (savepoint := connection.savepoint())
        ]
        try:
            return super()._call()
        finally:
            for connection, savepoint in opened:
                _end(connection, savepoint, atomic=getattr(self.task, "atomic", False))


def _end(connection: Any, savepoint: str, *, atomic: bool) -> None:
    if not _is_broken(connection):
        connection.savepoint_commit(savepoint)
    elif not atomic:  # whose own transaction is broken, here as in a worker
        connection.set_rollback(False)
        connection.savepoint_rollback(savepoint)


def _is_broken(connection: Any) -> bool:
    """Whether PostgreSQL or Django refuses every statement until the transaction is rolled back."""
    if connection.needs_rollback:
        return True
    status = connection.connection.info.transaction_status if connection.vendor == "postgresql" else None
    return status == TransactionStatus.INERROR


def _set(database: str, epoch_ms: str) -> None:
    with connections[database].cursor() as cursor:
        cursor.execute("select set_config('pgqueue.now', %s, false)", (epoch_ms,))
