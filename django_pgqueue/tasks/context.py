"""What a task that takes its context can see and say while it runs."""

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
    """Where a running task's words go, and where the answer to "shall I stop?" comes from."""

    def progress(self, message: Received, progress: str) -> None: ...
    def is_cancelled(self, message: Received) -> bool: ...


class Deferral(BaseException):
    """Ends an attempt that was deferred.  No Exception, so that no ``except Exception`` of a task takes it for one."""

    def __init__(self, wait_seconds: float, state: Any) -> None:
        super().__init__(wait_seconds, state)
        self.wait_seconds = wait_seconds
        self.state = state


@dataclass(frozen=True, slots=True, kw_only=True)
class PgQueueContext(TaskContext):  # type: ignore[misc,type-arg,unused-ignore]
    """The context of django.tasks, and what the queue adds to it.

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
        """1 in the first attempt.  Known without looking at the earlier ones."""
        return self.message.attempt

    @property
    def state(self) -> Any:
        """What the attempt that deferred or retried this message left for this one; None: nothing."""
        return None if self.message.state is None else json.loads(self.message.state)

    @property
    def cancelled(self) -> bool:
        """True once somebody asked this task to stop: within about a second."""
        return self.reports.is_cancelled(self.message)

    def raise_if_cancelled(self) -> None:
        """Ends the task as cancelled when somebody asked it to stop.  For a good place in a loop."""
        if self.cancelled:
            raise TaskCancelled

    def progress(self, fraction: float, text: str = "") -> None:
        """Says how far the task is, from 0 to 1, for those who watch.  Cheap: it is written about twice a second."""
        if not 0 <= fraction <= 1:
            message = f"fraction={fraction!r} is not between 0 and 1."
            raise ValueError(message)
        said = {"fraction": fraction, "text": text}
        self.reports.progress(self.message, content.encode(said, max_bytes=self.max_bytes, what="progress"))

    def defer(self, after: float | dt.timedelta = 0, *, state: Any = None) -> NoReturn:
        """Ends this attempt without an error: the task runs again ``after`` that many seconds, with ``state``.

        Attempts that were deferred do not count towards ``max_attempts``.  In an ``atomic`` task what was written in
        this attempt is rolled back, as for every attempt that does not succeed.
        """
        raise Deferral(seconds(after), content.normalize(state, "state"))
