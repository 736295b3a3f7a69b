"""Exceptions of the package.  The docstring of a class is the default message of its instances."""

from __future__ import annotations

import datetime as dt
from typing import Any

from django_pgqueue.compat import TaskException


class PgQueueError(Exception):
    """Something is wrong with the queue."""

    def __init__(self, message: str | None = None) -> None:
        super().__init__(message if message is not None else type(self).__doc__ or type(self).__name__)


class InvalidContent(PgQueueError, TypeError, ValueError):
    """The content cannot be stored as JSON."""


class ContentTooLarge(InvalidContent):
    """The content is larger than MAX_CONTENT_BYTES allows."""


class InvalidMessage(PgQueueError, ValueError):
    """The message has an argument that the queue cannot take."""


class InvalidEdit(PgQueueError, ValueError):
    """The action, its filter or its parameter is none that an edit can have."""


class InvalidPattern(InvalidMessage):
    """The pattern of a binding is invalid, or could slow publishers down."""


class UnknownExchange(PgQueueError, LookupError):
    """There is no exchange of this name."""


class AttemptLost(PgQueueError):
    """The lock of this attempt ran out, and another consumer took the message over: the call did nothing."""


class UnknownTask(PgQueueError, TaskException):
    """The message names a task that is not registered."""


class TaskBeingImported(UnknownTask):
    """Another thread is importing the module of the task."""


class DuplicateMessage(PgQueueError):
    """Another message holds the unique key."""

    def __init__(self, message: str | None = None, *, existing_id: int | None = None) -> None:
        super().__init__(message)
        self.existing_id = existing_id


class ChannelFull(PgQueueError):
    """The channel has as many waiting messages as its max_size allows."""

    def __init__(self, message: str | None = None, *, channel: str | None = None) -> None:
        super().__init__(message)
        self.channel = channel


class ChannelReleased(ChannelFull):
    """The channel was released and takes no new messages."""


class Retry(PgQueueError):
    """The task asked for another attempt.

    Raise it in a task: ``raise Retry(after=30)`` tries again in 30 seconds, with ``state`` for the next attempt.  It
    counts as an attempt and is in the history as one; without ``max_attempts`` a task has five.
    """

    def __init__(
        self, message: str | None = None, *, after: float | dt.timedelta | None = None, state: Any = None
    ) -> None:
        super().__init__("The task asked for another attempt." if message is None else message)
        self.wait_seconds = None if after is None else seconds(after)
        self.state = state


class TaskExpired(PgQueueError):
    """Nobody began the message by the time at which it expires (``expires=…``)."""


class TaskCancelled(PgQueueError):
    """A user asked the task to stop."""


def seconds(duration: float | dt.timedelta) -> float:
    """Returns a number of seconds, or a timedelta, as seconds; not below 0."""
    return max(0.0, duration.total_seconds() if isinstance(duration, dt.timedelta) else float(duration))


class InvalidSchedule(PgQueueError, ValueError):
    """The schedule is invalid."""


class TaskTimeout(PgQueueError, TimeoutError):
    """The task took longer than its timeout."""


class SlotDied(PgQueueError):
    """The thread or the event loop that ran the task has ended before the task."""


class DependencyFailed(PgQueueError):
    """A job that had to succeed first did not succeed."""


class InvalidStep(PgQueueError):
    """A step of a durable task cannot be done like this."""


class StepNotRepeated(PgQueueError):
    """A step had begun and not ended, and a person has decided that it is not repeated."""


class ChildFailed(PgQueueError):
    """A child of a durable task, or another job whose result was wanted, did not succeed."""

    def __init__(
        self,
        message: str | None = None,
        *,
        message_id: int | None = None,
        status: str | None = None,
        error_class: str | None = None,
        error_message: str | None = None,
    ) -> None:
        super().__init__(message)
        self.message_id = message_id
        self.status = status
        self.error_class = error_class
        self.error_message = error_message


class BudgetExceeded(PgQueueError):
    """The durable task has spent its budget."""


class EventConflict(PgQueueError):
    """The event was emitted before, with another payload."""


class OutdatedQueue(PgQueueError):
    """The queue in the database is older than this code: run the migrations."""


class HalfInstalled(PgQueueError):
    """The database has some parts of a queue, and lacks others."""
