"""Crash test of a task: it is killed after each of its database statements, and run again."""

from __future__ import annotations

import time
from collections import Counter
from contextlib import ExitStack, closing
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Self
from uuid import uuid4

from asgiref.sync import async_to_sync, sync_to_async
from django.db import connections
from django.test.testcases import DatabaseOperationForbidden  # type: ignore[attr-defined]

from django_pgqueue import functions
from django_pgqueue.backend.lookup import are_the_same
from django_pgqueue.consumer.connection import connect
from django_pgqueue.exceptions import PgQueueError
from django_pgqueue.tasks import registry
from django_pgqueue.testing.clock import is_of_tests, make_movable
from django_pgqueue.testing.crashes.breakpoints import Breakpoints, ProcessKilled
from django_pgqueue.testing.crashes.effects import DatabaseEffects, Effects, RowEffects
from django_pgqueue.testing.drain import backend_of, in_a_plain_thread
from django_pgqueue.values.times import microseconds
from django_pgqueue.worker.record import record
from django_pgqueue.worker.run.execution import Execution

if TYPE_CHECKING:
    from collections.abc import Callable

    import psycopg

    from django_pgqueue.backend.pgqueue import PgQueueBackend
    from django_pgqueue.compat import AnyTask
    from django_pgqueue.functions import Received
    from django_pgqueue.worker.run.outcome import Outcome

MAX_STATEMENTS = 1000
MAX_ATTEMPTS = 25
MAX_WAIT_SECONDS = 30.0
RETURNED = "(the task has returned, and its end is not recorded yet)"


@dataclass(frozen=True, slots=True, kw_only=True)
class Crash:
    """Crash after one statement, and the outcome when the message was run again."""

    number: int
    sql: str
    """Statement as it was sent, without its parameters."""
    place: str
    """Line of the handler that sent it, as ``file:line``; empty if other code sent it."""
    status: str
    """Final status of the message."""
    difference: str = ""
    """Difference of the effects from those of a run without a crash; empty: there is none."""

    def __str__(self) -> str:
        what = f"after {self.place}: {self.sql}" if self.place else f"after {self.sql}"
        return f"{what}\n    {self.difference}" if self.difference else what


@dataclass(frozen=True, slots=True, kw_only=True)
class CrashReport:
    """Result of ``crash_at_every_statement``; true if the effects happen exactly once wherever the task crashes."""

    task: str
    crashes: tuple[Crash, ...] = field(repr=False)

    @property
    def exactly_once(self) -> bool:
        return self.first is None

    @property
    def first(self) -> Crash | None:
        """The first crash after which the effects are not those of one run."""
        return next((crash for crash in self.crashes if crash.difference), None)

    def __bool__(self) -> bool:
        return self.exactly_once

    def __str__(self) -> str:
        how_often = f"{self.task} was killed at {len(self.crashes)} places and run again"
        if self.first is None:
            return f"{how_often}: its effects happened exactly once each time."
        wrong = [crash for crash in self.crashes if crash.difference]
        return (
            f"{how_often}: {len(wrong)} times its effects did not happen exactly once. The first time it was killed\n"
            f"  {self.first}"
        )


def crash_at_every_statement(
    task: AnyTask, *args: Any, effects: Callable[[], Any] | None = None, **kwargs: Any
) -> CrashReport:
    """Runs ``task`` again and again, kills it after each of its database statements, and compares its effects.

    For each run, the task is enqueued with these arguments, claimed and begun as by a worker.  Then its connection is
    cut and its code runs no further, as if its process had been killed.  Its lock runs out, and another worker runs the
    message to its end.  Then the effects must be those of one run without a crash.  Commits count as statements, and so
    does the end of the task, before it is recorded.

    ``effects``: a callable that returns what is to be compared.  Default: the rows of all tables of models, apart from
    the queue's own, and the jobs that were enqueued, in each PostgreSQL database that the test may use.  Values that
    differ from run to run anyway, such as times and generated keys, are left out.

    After each run the rows are restored, so nothing else may use these databases meanwhile.  It needs real
    transactions: a ``TransactionTestCase``, or pytest-django's ``transactional_db``.

    >>> report = crash_at_every_statement(charge, order.pk)  # doctest: +SKIP
    >>> assert report.exactly_once, report  # doctest: +SKIP
    """
    backend = backend_of(task.backend)
    databases = _databases(backend.settings.database)
    if any(connections[alias].in_atomic_block for alias in databases):
        message = (
            "crash_at_every_statement() needs commits, and this test runs in a transaction: use TransactionTestCase, "
            "or @pytest.mark.django_db(transaction=True)."
        )
        raise PgQueueError(message)
    registry.autodiscover()
    make_movable(backend.settings.database)
    with Laboratory(task, args, kwargs, backend=backend, effects=effects, databases=databases) as laboratory:
        return laboratory.report()


async def acrash_at_every_statement(
    task: AnyTask, *args: Any, effects: Callable[[], Any] | None = None, **kwargs: Any
) -> CrashReport:
    """The ``async`` variant of ``crash_at_every_statement``."""
    return await sync_to_async(crash_at_every_statement)(task, *args, effects=effects, **kwargs)


class Laboratory:
    """Task with its arguments, and databases that are restored after each trial."""

    def __init__(
        self,
        task: AnyTask,
        args: Any,
        kwargs: Any,
        *,
        backend: PgQueueBackend,
        effects: Callable[[], Any] | None,
        databases: list[str],
    ) -> None:
        self.task, self.args, self.kwargs = task, args, kwargs
        self.databases = databases
        self.backend = backend
        self.database = backend.settings.database
        self.queue = f"crash-{uuid4().hex[:12]}"
        self.control: psycopg.Connection[Any]
        self.opened: ExitStack
        self.rows: DatabaseEffects
        self.effects: Effects
        self.own = effects

    def __enter__(self) -> Self:
        with ExitStack() as stack:
            opened = {alias: stack.enter_context(closing(connect(alias))) for alias in self.databases}
            self.control = opened[self.database]
            self.rows = DatabaseEffects(RowEffects(control, alias) for alias, control in opened.items())
            self.effects = self.rows if self.own is None else _Asked(self.own)
            stack.callback(self._reset)
            self.opened = stack.pop_all()
        return self

    def __exit__(self, *_: object) -> None:
        self.opened.close()

    def report(self) -> CrashReport:
        expected = self._expected()
        crashes: list[Crash] = []
        while True:
            points = Breakpoints(self.task, stop_after=len(crashes) + 1)
            status = self._trial(points)
            returned = not points.is_stopped
            difference = self._difference(expected, status)
            place = points.places[-1] if points.places and not returned else ("", RETURNED)
            crashes.append(Crash(
                number=len(crashes) + 1, sql=place[1], place=place[0], status=status, difference=difference
            ))  # fmt: skip
            if returned:
                return CrashReport(task=self.task.module_path, crashes=tuple(crashes))
            if len(crashes) >= MAX_STATEMENTS:
                message = f"{self.task.module_path} has more than {MAX_STATEMENTS} statements: give it a smaller job."
                raise PgQueueError(message)

    def _expected(self) -> tuple[str, Any]:
        """Returns status and effects of two runs without a crash.  Values that differ between them are left out."""
        statuses = []
        for _ in range(2):
            statuses.append(self._trial(Breakpoints(self.task, stop_after=None)))
            self.effects.learn()
        if statuses[0] != "succeeded":
            message = (
                f"{self.task.module_path} ends as {statuses[0]} without any crash: give it arguments with which "
                "it succeeds."
            )
            raise PgQueueError(message)
        return statuses[0], self.effects.seen()

    def _difference(self, expected: tuple[str, Any], status: str) -> str:
        difference = self.effects.difference(expected[1])
        ended = f"run again, it ended as {status}" if status != expected[0] else "run again"
        if status != expected[0]:
            return f"{ended}; {difference or 'its effects are complete nevertheless'}"
        return f"{ended}: {difference}" if difference else ""

    # One trial

    def _trial(self, points: Breakpoints) -> str:
        """Enqueues the message and runs it up to the breakpoint.  Then another worker runs it to its end."""
        self._reset()
        message_id = int(self.task.enqueue(*self.args, **self.kwargs).id)
        with self.control.cursor() as cursor:
            cursor.execute(
                "update pgqueue_message set queue = %s, unlock_at = null, dequeue_at = pgqueue_now() where id = %s",
                (self.queue, message_id),
            )
        for _ in range(MAX_ATTEMPTS):
            message = self._claim(message_id)
            if message is None:
                break
            end = self._run(message, points)
            if end is not None:
                record(self.control, [end], worker=end.message.worker)
            points = Breakpoints(self.task, stop_after=None)  # the others run to their end
        return self._status(message_id)

    def _claim(self, message_id: int) -> Received | None:
        """Claims as another worker, after the lock of the first one has run out.  None: the message has ended."""
        deadline = time.monotonic() + MAX_WAIT_SECONDS
        while time.monotonic() < deadline:
            waiting = self.control.execute(
                "select greatest(m.dequeue_at, m.unlock_at, pgqueue_now()) from pgqueue_message m where m.id = %s",
                (message_id,),
            ).fetchone()
            if waiting is None:
                return None
            self.control.execute("select set_config('pgqueue.now', %s, false)", (str(waiting[0]),))
            claimed = functions.message_dequeue(
                self.control, queues=[self.queue], lock_ms=60_000, worker=f"crash-{uuid4().hex[:8]}", tasks=True
            )
            self.control.execute("select set_config('pgqueue.now', '', false)")
            if claimed:
                return claimed[0]
            time.sleep(0.01)  # the server has not noticed yet that the first one is gone
        message = (
            f"Message {message_id} cannot be claimed again: check whether its queue is paused, or its channel is "
            "at its limit."
        )
        raise PgQueueError(message)

    def _run(self, message: Received, points: Breakpoints) -> Any:
        """Returns the end of the attempt.  None: it was killed."""
        execution = UntilItIsKilled(
            message,
            backend=self.backend,
            clock=lambda: microseconds(functions.now(self.control)),
            reports=_Reports(self.control),
        )
        execution.points = points
        with points.watching(), in_a_plain_thread():
            try:
                is_async = registry.is_async(message.task or "")
                end = async_to_sync(execution.arun)() if is_async else execution.run()
            except ProcessKilled:
                end = None
        if points.stop_after is None:
            return end
        points.cut()  # a task that has returned is killed before its end is recorded
        points.bury()
        return None

    def _status(self, message_id: int) -> str:
        ended = self.control.execute(
            "select status from pgqueue_attempt where message_id = %s and final", (message_id,)
        ).fetchone()
        return "no outcome: it is still in the queue" if ended is None else str(ended[0])

    def _reset(self) -> None:
        for rows in self.rows.databases:
            connections[rows.database].close()
        self.rows.put_back()


def _databases(own: str) -> list[str]:
    """Returns the queue's database, and the others that the test may use, in which its models may be.

    Raises PgQueueError for one that is no test database: from a database in use nothing may be deleted.
    """
    found = [own]
    for alias in connections:
        other: Any = connections[alias]
        if other.vendor != "postgresql" or any(are_the_same(alias, one) or are_the_same(one, alias) for one in found):
            continue
        try:
            other.cursor().close()
        except DatabaseOperationForbidden:  # Django's, in each thread of the test
            continue
        if not is_of_tests(other):
            message = (
                f"The test may use the database {alias!r}, whose name, {other.settings_dict['NAME']!r}, is not that of "
                "a test database. crash_at_every_statement() restores the rows of each database that the test may use: "
                "leave it out of the databases of the test, or name it in TEST."
            )
            raise PgQueueError(message)
        found.append(alias)
    return found


class UntilItIsKilled(Execution):
    """Execution that sends no signals after the crash."""

    __slots__ = ("points",)
    points: Breakpoints

    async def acall(self) -> Any:
        self.points.follow_this_coroutine()
        return await super().acall()

    def send_finished(self, outcome: Outcome | None = None) -> None:
        if not self.points.is_stopped:
            super().send_finished(outcome)

    async def asend_finished(self, outcome: Outcome | None = None) -> None:
        if not self.points.is_stopped:
            await super().asend_finished(outcome)


class _Reports:
    def __init__(self, control: psycopg.Connection[Any]) -> None:
        self.control = control

    def progress(self, message: Received, progress: str) -> None:
        functions.message_progress(self.control, message, progress)

    def is_cancelled(self, message: Received) -> bool:
        return bool(functions.message_cancellations(self.control, [message.id], worker=message.worker))


class _Asked(Effects):
    """Effects that the test's own callable returns."""

    def __init__(self, ask: Callable[[], Any]) -> None:
        self.ask = ask
        self.answers: Counter[str] = Counter()

    def seen(self) -> Any:
        return self.ask()

    def learn(self) -> None:
        self.answers[repr(self.ask())] += 1
        if len(self.answers) > 1:
            message = f"effects() returns another value after each run, even without a crash: {list(self.answers)}"
            raise PgQueueError(message)

    def difference(self, expected: Any) -> str:
        seen = self.ask()
        return "" if seen == expected else f"effects() is {seen!r} instead of {expected!r}"
