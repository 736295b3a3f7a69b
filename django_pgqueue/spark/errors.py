"""Errors between Spark and the queue.  Nothing here imports Django, because executors raise them too."""

from __future__ import annotations

import re

OURS = re.compile(r"django_pgqueue\.spark\.[\w.]+: (.+)")


class SparkQueueError(Exception):
    """Something is wrong between Spark and the queue."""

    exit_code = 1
    """Of the command line."""

    def __init__(self, message: str | None = None) -> None:
        super().__init__(message if message is not None else type(self).__doc__)


class InvalidOption(SparkQueueError, ValueError):
    """An option of the data source cannot be used."""


class InvalidColumns(SparkQueueError, ValueError):
    """A DataFrame or a schema has a column that the queue does not have, or another type."""


class InvalidRow(SparkQueueError, ValueError):
    """A row cannot become a message."""


class DatabaseUnavailable(SparkQueueError):
    """PostgreSQL cannot be reached, or broke off."""


class HistoryReplaced(SparkQueueError):
    """The offset is ahead of the server: its history is another one than the stream has followed."""


class NothingEnqueued(SparkQueueError):
    """The messages were enqueued before, so this run enqueued nothing."""

    exit_code = 3


class NoJava(SparkQueueError):
    """Spark needs Java 17 or 21, and none was found."""


def reason(error: Exception) -> str | None:
    """Returns the message of this package's error in a task, without the text that Spark adds around it."""
    found = OURS.findall(str(error))
    return str(found[-1]) if found else None
