"""Errors between Spark and the queue.  Nothing here imports Django, because executors raise them too."""

from __future__ import annotations

import re
from contextlib import contextmanager
from traceback import walk_tb
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

OURS = re.compile(r"django_pgqueue\.spark\.[\w.]+: (.+)")
RAISED = re.compile(r"Traceback \(most recent call last\):\n(?:[ \t].*\n)+([\w.]+: .+)")
COLOURS = re.compile(r"\x1b\[[0-9;]*m")
STACK = re.compile(r"\n\s+0: ")
"""Where the frames of Rust begin."""


class SparkQueueError(Exception):
    """Something is wrong between Spark and the queue."""

    exit_code = 1
    """Of the command line."""

    def __init__(self, message: str | None = None) -> None:
        super().__init__(message if message is not None else type(self).__doc__ or type(self).__name__)


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


class CheckpointBehind(SparkQueueError):
    """The checkpoint of a stream is older than what the stream has enqueued."""


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
            "k8s://...) or this machine (--master 'local[*]'), and unset SPARK_REMOTE, SPARK_API_MODE and "
            "SPARK_CONNECT_MODE_ENABLED. The data source pgqueue reads and writes with Spark Connect too."
        )


NOT_STARTED = "Python worker failed to connect back"
"""Text of Spark on a machine that is too busy to start a Python worker in ten seconds.  Nothing has happened then."""
SIGNS = {
    NOT_STARTED: (
        "Spark waited ten seconds for a Python process in vain: the machine is too busy, or the program in "
        "PYSPARK_PYTHON does not start. Run the command again when the machine has less to do."
    ),
    "FILE_NOT_EXIST": (
        "A file of the lake has gone while it was read, as when rows are erased: run the command again. If that says "
        "the same, qpipeline check names the files that are missing."
    ),
}
CONDITION = re.compile(r"\[[A-Z][A-Z_.]+\] .+")
"""What Spark's own errors begin with: the class of the error."""
CAUSE = re.compile(r"^Caused by: ([\w.$]+: .+)", re.MULTILINE)
"""One with words: the last of all may be a bare name, such as that of the end of a stream."""
CUT_OFF = re.compile(r"An error occurred while calling \S+")
"""All that py4j says of a connection that broke while it waited for the answer."""
NO_PROGRAM = re.compile(r'Cannot run program "([^"]+)"')
OF_SPARK, OF_FILES = "Spark failed", "Files cannot be read or written"
HAPPENED = {"py4j": OF_SPARK, "pyspark": OF_SPARK, "_internal": OF_FILES}
"""Begins of messages by the package of an error.  Those of deltalake are in _internal."""
GONE = (
    "Spark's Java process has ended: by a signal, or without memory, which it has said above. Run the command again, "
    "with more memory if it needs it: --conf spark.driver.memory=4g."
)


def reason(error: Exception) -> str | None:
    """Returns the message for people about an error of a task, of Spark, of PostgreSQL or of the lake's place, without
    the traces of Java and Python that Spark adds.  None: it is another error.
    """
    try:
        return GONE if has_lost_java(error) else _words(error, str(error))
    except Exception as lost:
        if has_lost_java(lost):  # it was asked for the text
            return GONE
        raise


def _words(error: Exception, text: str) -> str | None:
    if found := OURS.findall(text):
        return str(found[-1])
    if words := next((words for sign, words in SIGNS.items() if sign in text), None):
        return words
    if program := NO_PROGRAM.search(text):
        return (
            f"Spark cannot start the program {program[1]!r}. Set PYSPARK_PYTHON to a Python that has this package, on "
            "the driver and on each executor, or unset it."
        )
    if raised := RAISED.findall(text):
        return f"A task failed: {plain(raised[-1])}"
    if (happened := _happened(error)) != OF_SPARK:
        return happened and f"{happened}: {plain(error)}"
    # The cause may stand below errors that only say that there was one.
    lines = CONDITION.findall(text) or CAUSE.findall(text)[-1:] or text.splitlines()
    lines = [line.strip(" :.") for line in lines if line.strip() and not line.startswith("An error occurred while")]
    words = lines[0] if lines else ""
    return f"{OF_SPARK}: {words or type(error).__name__}. Its logs, with spark.log.level=INFO, say more."


def has_lost_java(error: Exception) -> bool:
    frames = walk_tb(error.__traceback__)
    is_of_py4j = any(frame.f_globals.get("__name__", "").startswith("py4j.") for frame, _ in frames)
    kind = type(error).__name__
    is_cut_off = kind == "Py4JError" and CUT_OFF.fullmatch(str(error)) is not None
    return kind == "Py4JNetworkError" or is_cut_off or (is_of_py4j and isinstance(error, ConnectionError))


def _happened(error: Exception) -> str | None:
    if isinstance(error, OSError) and not isinstance(error, ConnectionError):  # py4j has lost its Java
        return OF_FILES
    package = type(error).__module__.partition(".")[0]
    return of_postgresql(error) if package == "psycopg" else HAPPENED.get(package)


def of_postgresql(error: Exception) -> str:
    """Says whether PostgreSQL was reached: without a code of its own, an operational error is the network's."""
    state = getattr(error, "sqlstate", None)
    if state is None and any(kind.__name__ == "OperationalError" for kind in type(error).__mro__):
        return "PostgreSQL cannot be reached"
    return "PostgreSQL broke off" if str(state).startswith(("08", "57")) else "PostgreSQL refused"


def plain(error: object) -> str:
    """Returns the text of an error in one line, without the colours of deltalake and without its stack."""
    return " ".join(STACK.split(COLOURS.sub("", str(error)))[0].split())


@contextmanager
def told() -> Iterator[None]:
    """Raises an error that has a message for people again, with this message."""
    try:
        yield
    except SparkQueueError:
        raise
    except Exception as error:
        if (words := reason(error)) is not None:
            raise SparkQueueError(words) from error
        raise
