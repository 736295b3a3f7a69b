"""Tools for the tests of projects that use the queue."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING

from django.db import connections
from django.utils import timezone

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
    from collections.abc import Iterator, Sequence

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
        if not claimed:
            break
        end = Execution(
            claimed[0],
            backend=tasks,
            clock=lambda: functions.now(connection),
            reports=DirectReports(connection),
        ).run()
        record(connection, [end], worker=WORKER)
        finished.append(results.load(str(end.message.id), alias=backend, database=tasks.settings.database))
    return finished


class Clock:
    """The queue's clock of this database session, to be moved by tests instead of waiting."""

    def __init__(self, at: dt.datetime, database: str) -> None:
        self.database = database
        self.move_to(at)

    def move_to(self, at: dt.datetime) -> None:
        self.at = at
        _set(self.database, str(to_epoch_ms(at)))

    def advance(self, by: dt.timedelta) -> None:
        self.move_to(self.at + by)


@contextmanager
def clock(at: dt.datetime | None = None, *, database: str = "default") -> Iterator[Clock]:
    """Stops the queue's clock of this database session at ``at`` (default: now), to be moved from there.

    >>> with clock() as now:
    ...     remind.using(run_after=timedelta(hours=1)).enqueue()
    ...     now.advance(timedelta(hours=1))
    ...     drain()  # doctest: +SKIP
    """
    try:
        yield Clock(at or timezone.now(), database)
    finally:
        _set(database, "")


def _set(database: str, epoch_ms: str) -> None:
    with connections[database].cursor() as cursor:
        cursor.execute("select set_config('pgqueue.now', %s, false)", (epoch_ms,))
