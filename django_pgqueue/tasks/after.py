"""Dependencies: jobs that run after others, for chains, fan-out and fan-in."""

from __future__ import annotations

import time
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, ParamSpec, TypeVar

from django.db import connections, transaction
from django.utils.asyncio import async_unsafe

from django_pgqueue.compat import (
    DEFAULT_TASK_BACKEND_ALIAS,
    InvalidTask,
    Task,
    TaskResultDoesNotExist,
    task_backends,
)
from django_pgqueue.exceptions import PgQueueError, seconds
from django_pgqueue.functions import explained, messages_ended, messages_left, running
from django_pgqueue.tasks import habits
from django_pgqueue.values import arguments
from django_pgqueue.values.redaction import quote

if TYPE_CHECKING:
    import datetime as dt
    from collections.abc import Iterable, Iterator

    from django_pgqueue.compat import AnyTask, AnyTaskResult, GenericTask, TaskResult

P = ParamSpec("P")
R = TypeVar("R")
POLICIES = ("finished", "succeeded")
MAX_IDS = 100_000
RESULTS = "after_results"
"""Name of the header of a message that wants the results of those after which it comes."""


def ids(results: Iterable[AnyTaskResult | int | str], backend: str | None = None) -> tuple[int, ...]:
    """Returns the message ids of results.  ``backend``: that of the job that comes after them.

    >>> ids([3, "1", 3])
    (1, 3)
    """
    if isinstance(results, str) or not hasattr(results, "__iter__"):  # the id of a result is a text, too
        message = f"after is {quote(results)}, and must be a list of results or ids: after=[result]."
        raise InvalidTask(message)
    found, backends = set(), set()
    for result in results:
        given = arguments.id_of(result)
        text = str(given) if isinstance(given, str) or hasattr(given, "__index__") else ""
        if isinstance(given, bool) or not (text.isascii() and text.isdigit() and len(text) < 20 and int(text) < 2**63):
            message = f"after has {result!r}, which is neither the result of an enqueued job nor its id."
            raise InvalidTask(message)
        found.add(int(text))
        backends.add(getattr(result, "backend", None))
    if backend is not None:
        _require_one_database(backend, backends - {None, backend})
    return tuple(sorted(found))


def _require_one_database(backend: str, others: Iterable[Any]) -> None:
    """Raises InvalidTask: in another database another message may have the id, or none, as if it had ended."""
    for other in others:
        if _address_of(other) != _address_of(backend):
            message = (
                f"after has a job of the backend {other!r}, and what comes after it is a job of {backend!r}: their "
                "queues are in two databases, and a job waits for jobs of its own."
            )
            raise InvalidTask(message)


def _address_of(backend: str) -> Any:
    """Returns what two aliases of one database have in common."""
    database = getattr(getattr(task_backends[backend], "settings", None), "database", None)
    known = None if database is None else connections[database].settings_dict
    return known and [known[key] for key in ("HOST", "PORT", "NAME")]


def validate(task: AnyTask) -> None:
    after, policy = getattr(task, "after", ()), getattr(task, "after_policy", "finished")
    if policy not in POLICIES:
        message = f"after_policy must be one of {', '.join(POLICIES)}, not {policy!r}."
        raise InvalidTask(message)
    if type(results := getattr(task, "after_results", False)) is not bool:
        message = f"after_results must be True or False, not {results!r}."
        raise InvalidTask(message)
    if results and not task.takes_context:
        message = (
            f"{task.module_path} is to get results, and has no context to read them from: declare it with "
            "@task(takes_context=True), and call context.results()."
        )
        raise InvalidTask(message)
    if len(after) > MAX_IDS:
        message = (
            f"after has {len(after):,} jobs and may have {MAX_IDS:,}: split them into batches, each with its own "
            "callback."
        )
        raise InvalidTask(message)
    if after and getattr(task, "unique_key", None) is not None:
        message = "A job that comes after others cannot have a unique_key: it would hold the key while it waits."
        raise InvalidTask(message)


@dataclass(slots=True, kw_only=True)
class Batch:
    """Object of a ``batch``: it enqueues jobs and keeps their results."""

    database: str
    results: list[AnyTaskResult] = field(default_factory=list)
    """Results of the jobs, in the order of their enqueues.  ``wait`` reads them again."""
    callback: AnyTaskResult | None = None
    is_open: bool = field(default=True, repr=False)
    """Whether the block has not ended yet."""

    if not TYPE_CHECKING:  # for type checkers, a batch has the attributes of this class and no others

        def __getattr__(self, name: str) -> Any:
            raise habits.missing(self, name, habits.of_batch(name))

    def enqueue(self, task: GenericTask[P, R], *args: P.args, **kwargs: P.kwargs) -> TaskResult[P, R]:
        if not self.is_open:
            message = (
                "The block of this batch has ended: no callback would wait for another job. Enqueue it in the block, "
                "or without the batch."
            )
            raise PgQueueError(message)
        if (database := _database_of(task)) != self.database:
            message = (
                f"{task.module_path} has its queue in the database {database!r}, and the batch is in "
                f"{self.database!r}: all jobs of a batch are in one database."
            )
            raise InvalidTask(message)
        result = task.enqueue(*args, **kwargs)
        self.results.append(result)
        return result

    @property
    def total(self) -> int:
        """Number of jobs, without the callback."""
        return len(self.results)

    @property
    def done(self) -> int:
        """Number of jobs that have ended by now, without the callback.  Each look is one query, the last one two."""
        return self.total - len(self._left(self.results))

    def wait(self, timeout: float | dt.timedelta | None = None) -> list[AnyTaskResult]:
        """Waits until all jobs and the callback have ended.  Returns ``results``, read again, as is ``callback``.

        ``timeout``: seconds, or a timedelta; then it raises TimeoutError.  It looks up to fifty times a second at
        first, and later once.  It needs the jobs to be committed, and does not run inside of a task, whose slot they
        may need.  If their transaction was rolled back, ``wait`` and ``done`` raise TaskResultDoesNotExist.

        >>> for result in jobs.wait(timeout=30):
        ...     print(result.return_value)  # doctest: +SKIP
        """
        everything = [*self.results, *([] if self.callback is None else [self.callback])]
        longest = None if timeout is None else seconds(timeout)
        began, pause = time.monotonic(), 0.02
        while left := self._left(everything):
            self._require_that_they_can_end(left)
            waited = time.monotonic() - began
            if longest is not None and waited >= longest:
                message = f"{len(left)} of {len(everything)} jobs have not ended within {longest:g} seconds."
                raise TimeoutError(message)
            time.sleep(pause if longest is None else min(pause, longest - waited))
            pause = min(pause * 1.5, 1.0)
        for result in everything:
            result.refresh()
        return self.results

    def _left(self, results: list[AnyTaskResult]) -> set[int]:
        """Returns the ids of those that have not ended.

        What is neither in the queue nor in the history has not ended either: it was never committed.
        """
        connection, known = connections[self.database], ids(results)
        with explained(self.database):
            left = messages_left(connection, known)
            unknown = set() if left else set(known) - messages_ended(connection, known)
        if unknown:
            message = (
                f"This batch has {len(known)} jobs, and the database knows nothing of {len(unknown)}: the transaction "
                "that enqueued them was rolled back. (Or they were deleted, or they ended more than HISTORY_DAYS ago.)"
            )
            raise TaskResultDoesNotExist(message)
        return left

    def _require_that_they_can_end(self, left: set[int]) -> None:
        if running.get() is not None:
            message = (
                f"{len(left)} jobs have not ended, and a job that waits for them holds the slot that they may need. "
                "Let a callback come after them: batch(callback, …, results=True). Or make the task durable."
            )
            raise PgQueueError(message)
        if connections[self.database].in_atomic_block:
            message = (
                f"{len(left)} jobs have not ended, and cannot while this transaction is open: call wait() behind "
                "transaction.atomic(), and in a test drain() before it."
            )
            raise PgQueueError(message)


@async_unsafe("batch() is a transaction, which async code cannot open: await sync_to_async(a function with it)().")
@contextmanager
def batch(
    then: Any = None, *args: Any, when: str = "finished", results: bool = False, **kwargs: Any
) -> Iterator[Batch]:
    """Enqueues jobs, and the job ``then``, which runs once when all of them have ended.  None: no job runs then.

    ``when="succeeded"``: ``then`` is cancelled if one of them fails or is cancelled.  ``results``: ``then`` gets what
    they return, by ``context.results()``.  All jobs are enqueued, or none.

    >>> with batch(send_report, month, when="succeeded", results=True) as jobs:
    ...     for order in orders:
    ...         jobs.enqueue(price, order.pk)  # doctest: +SKIP
    """
    if then is None and (args or kwargs or results or when != "finished"):
        message = (
            "A batch without a callback takes neither arguments nor when= or results=, which are the callback's: "
            "batch(callback, …, results=True). jobs.wait() returns the results of the jobs themselves."
        )
        raise TypeError(message)
    if when not in POLICIES:
        message = f"when must be one of {', '.join(POLICIES)}, not {when!r}."
        raise InvalidTask(message)
    jobs = Batch(database=_database_of(then))
    callback = None if then is None else then.using(after_policy=when, after_results=results)
    with transaction.atomic(using=jobs.database):
        try:
            yield jobs
        finally:
            jobs.is_open = False
        if callback is not None:
            jobs.callback = callback.using(after=jobs.results).enqueue(*args, **kwargs)


def _database_of(task: Any) -> str:
    """Returns the database of a task's queue; without a task, that of the default backend."""
    if not (task is None or isinstance(task, Task)):
        message = f"{quote(task)} is no task: batch() takes the callback, and jobs.enqueue each job, as a task."
        raise InvalidTask(message)
    backend: Any = task_backends[DEFAULT_TASK_BACKEND_ALIAS] if task is None else task.get_backend()
    if not hasattr(backend, "settings"):
        message = f"A batch needs the backend of this package, and {backend.alias!r} is {type(backend).__name__}."
        raise InvalidTask(message)
    database: str = backend.settings.database
    return database
