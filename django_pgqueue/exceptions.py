"""What can go wrong, in words.  The docstring of a class is its message where none is given."""

from __future__ import annotations

from django_pgqueue.compat import TaskException


class PgQueueError(Exception):
    """Something is wrong with the queue."""

    def __init__(self, message: str | None = None) -> None:
        super().__init__(message if message is not None else type(self).__doc__)


class InvalidContent(PgQueueError, TypeError, ValueError):
    """The content can not be stored as JSON."""


class ContentTooLarge(InvalidContent):
    """The content is larger than MAX_CONTENT_BYTES allows."""


class InvalidMessage(PgQueueError, ValueError):
    """The message has an argument that the queue can not take."""


class AttemptLost(PgQueueError):
    """The lock of this attempt ran out and the message was taken over: the call did nothing."""


class UnknownTask(PgQueueError, TaskException):
    """The message names a task that is not registered."""
