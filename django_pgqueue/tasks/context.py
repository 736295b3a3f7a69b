"""The context of a running task, for tasks that take it."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NoReturn, Protocol

from asgiref.sync import sync_to_async
from django.db import connections

from django_pgqueue.compat import TaskContext
from django_pgqueue.exceptions import PgQueueError, TaskCancelled, seconds
from django_pgqueue.functions import after_outcomes, explained
from django_pgqueue.tasks import after as dependencies, habits
from django_pgqueue.tasks.outcome import value_of
from django_pgqueue.values import content

if TYPE_CHECKING:
    import datetime as dt

    from django_pgqueue.functions import Received


class Reports(Protocol):
    """Interface that takes the progress of a running task and says whether its cancellation was requested."""

    def progress(self, message: Received, progress: str) -> None: ...
    def is_cancelled(self, message: Received) -> bool: ...


class Deferral(BaseException):
    """Ends an attempt that was deferred.  It is no Exception, so that no ``except Exception`` in a task catches it."""

    def __init__(self, wait_seconds: float, state: Any) -> None:
        super().__init__(wait_seconds, state)
        self.wait_seconds = wait_seconds
        self.state = state


@dataclass(frozen=True, slots=True, kw_only=True)
class PgQueueContext(TaskContext):  # type: ignore[misc,type-arg,unused-ignore]
    """The context of django.tasks, with the additions of this package.

    >>> @task(takes_context=True)
    ... def poll(context, job_id):
    ...     seen = context.state or {"polls": 0}
    ...     if not remote_is_done(job_id):
    ...         context.defer(30, state={"polls": seen["polls"] + 1})  # doctest: +SKIP
    """

    message: Received
    reports: Reports
    max_bytes: int
    database: str

    if not TYPE_CHECKING:  # for type checkers, a context has the attributes below and no others

        def __getattr__(self, name: str) -> Any:
            """Names the right call to people who come from another queue."""
            raise habits.missing(self, name, habits.of_context(name))

    @property
    def attempt(self) -> int:
        """Number of this attempt, from 1 on.  It needs no query for the earlier ones."""
        return self.message.attempt

    @property
    def state(self) -> Any:
        """State that the last attempt passed on when it deferred or retried the message.  None: there is none."""
        return None if self.message.state is None else json.loads(self.message.state)

    @property
    def cancelled(self) -> bool:
        """Whether this task was asked to stop.  It turns True within about a second of the request."""
        return self.reports.is_cancelled(self.message)

    def raise_if_cancelled(self) -> None:
        """Ends the task as cancelled if it was asked to stop.  Call it at a safe point in a loop."""
        if self.cancelled:
            raise TaskCancelled

    def progress(self, fraction: float, text: str = "") -> None:
        """Reports the progress of the task, from 0 to 1.  Calls are cheap: the worker writes about twice a second."""
        if not 0 <= fraction <= 1:
            message = f"fraction={fraction!r} is not between 0 and 1."
            raise ValueError(message)
        report = {"fraction": fraction, "text": text}
        self.reports.progress(self.message, content.encode(report, max_bytes=self.max_bytes, what="progress"))

    def results(self) -> list[Any]:
        """Returns what the jobs returned after which this one comes, in the order of their ids.

        It needs ``batch(…, results=True)`` or ``using(after=…, after_results=True)``.  A job that did not succeed has
        its ChildFailed in the list.  Each attempt gets the same list, however short the history is.

        >>> @task(takes_context=True)
        ... def add_up(context, month):
        ...     return sum(context.results())  # doctest: +SKIP
        """
        headers = json.loads(self.message.headers or "{}")
        if not isinstance(headers, dict) or not headers.get(dependencies.RESULTS):
            message = (
                f"Message {self.message.id} has asked for no results: enqueue it by batch(…, results=True), or by "
                "using(after=[…], after_results=True)."
            )
            raise PgQueueError(message)
        with explained(self.database):
            outcomes = after_outcomes(connections[self.database], self.message.id)
        return [value_of(outcome, "the job") for outcome in outcomes]

    async def aresults(self) -> list[Any]:
        """The ``async`` variant of ``results``."""
        return await sync_to_async(self.results)()

    def defer(self, after: float | dt.timedelta = 0, *, state: Any = None) -> NoReturn:
        """Ends this attempt without an error.  The task runs again ``after`` that many seconds, with ``state``.

        Deferred attempts do not count towards ``max_attempts``.  An ``atomic`` task loses what it has written in this
        attempt: it is rolled back, as in every attempt that does not succeed.
        """
        raise Deferral(seconds(after), content.normalize(state, "state"))
