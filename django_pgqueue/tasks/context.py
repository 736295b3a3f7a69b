"""The context of a running task, for tasks that take it."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NoReturn, Protocol

from django_pgqueue.compat import TaskContext
from django_pgqueue.exceptions import TaskCancelled, seconds
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

    def defer(self, after: float | dt.timedelta = 0, *, state: Any = None) -> NoReturn:
        """Ends this attempt without an error.  The task runs again ``after`` that many seconds, with ``state``.

        Deferred attempts do not count towards ``max_attempts``.  An ``atomic`` task loses what it has written in this
        attempt: it is rolled back, as in every attempt that does not succeed.
        """
        raise Deferral(seconds(after), content.normalize(state, "state"))
