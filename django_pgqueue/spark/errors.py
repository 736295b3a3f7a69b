"""Errors between Spark and the queue.  Nothing here imports Django, because executors raise them too."""

from __future__ import annotations

import re
from contextlib import contextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

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


class SparkConnectRefused(SparkQueueError):
    """The steps of the pipeline cannot run with Spark Connect."""

    def __init__(self, address: str) -> None:
        super().__init__(
            f"The pipeline cannot use Spark Connect ({address}): it counts and moves files where the driver is, and "
            "with Spark Connect that is another machine. Name the cluster itself (--master spark://host:7077, yarn, "
            "k8s://...) or this machine (--master 'local[*]'), and unset SPARK_REMOTE. The data source pgqueue reads "
            "and writes with Spark Connect too."
        )


class SparkFailed(SparkQueueError):
    """Spark itself failed."""


NOT_STARTED = "Python worker failed to connect back"
"""Text of Spark on a machine that is too busy to start a Python worker in ten seconds.  Nothing has happened then."""
NO_PROGRAM = re.compile(r'Cannot run program "([^"]+)"')
OF_SPARK = ("py4j", "pyspark")


def reason(error: Exception) -> str | None:
    """Returns the message for people about an error of this package in a task, or about one of Spark, without the
    traces of Java and Python that Spark adds.  None: the error is neither.
    """
    if found := OURS.findall(str(error)):
        return str(found[-1])
    if NOT_STARTED in str(error):
        return (
            "Spark waited ten seconds for a Python process in vain: the machine is too busy, or the program in "
            "PYSPARK_PYTHON does not start. Run the command again when the machine has less to do."
        )
    if program := NO_PROGRAM.search(str(error)):
        return (
            f"Spark cannot start the program {program[1]!r}. Set PYSPARK_PYTHON to a Python that has this package, on "
            "the driver and on each executor, or unset it."
        )
    if type(error).__module__.partition(".")[0] not in OF_SPARK:
        return None
    lines = [line.strip(" :.") for line in str(error).splitlines()]
    words = next((line for line in lines if line and not line.startswith("An error occurred while calling")), "")
    return f"Spark failed: {words or type(error).__name__}. Its logs, with spark.log.level=INFO, say more."


@contextmanager
def told() -> Iterator[None]:
    """Raises an error of a task or of Spark again, with its message for people."""
    try:
        yield
    except SparkQueueError:
        raise
    except Exception as error:
        if (words := reason(error)) is not None:
            raise SparkFailed(words) from error
        raise
