"""Copies rows into the staging table, and from there, once and all together, into the queue."""

from __future__ import annotations

import uuid
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING

import psycopg
from pyspark.sql.datasource import WriterCommitMessage

from django_pgqueue.spark import database
from django_pgqueue.spark.errors import CheckpointBehind, DatabaseUnavailable

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from django_pgqueue.spark.options import PipelineOptions

    Lines = tuple[int, bytes | memoryview]
    """A number of rows, and their text for COPY."""

STAGED = ("dequeue_at", "max_attempts", "priority", "queue", "channel", "task", "unique_key", "content", "headers")
COPY = f"copy pgqueue_staged (batch, token, {', '.join(STAGED)}) from stdin"
ENQUEUE = "select pgqueue_staged_enqueue(%s, %s, %s, %s, %s)"
REPLAY = "select pgqueue_staged_enqueue(%s, %s, %s, %s, %s, %s)"
TRIES = 3
UNKNOWN = ". The rows are enqueued or not. Write the same again with option runId {run_id!r}: then they are, once."
BATCH = -1
"""Epoch of a run that is no stream."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Epoch:
    """One micro-batch of a stream, or a whole batch: its rows are enqueued all together or not at all."""

    run_id: str
    number: int = BATCH
    writer: str = ""
    """Tells two writers of one run apart.  The tasks of a micro-batch know none: Spark runs a stream once only."""

    @property
    def batch(self) -> uuid.UUID:
        """Id of the rows that this writer stages: it deletes no others."""
        return uuid.uuid5(uuid.NAMESPACE_OID, f"{self.number} {self.run_id}{self.writer and f' by {self.writer}'}")

    @property
    def name(self) -> uuid.UUID:
        """The same in every try of this epoch, whoever writes it."""
        return uuid.uuid5(uuid.NAMESPACE_OID, f"{self.number} {self.run_id}")


@dataclass(frozen=True, kw_only=True)
class StagedRows(WriterCommitMessage):
    """The rows that one task has staged."""

    epoch: Epoch
    token: uuid.UUID
    rows: int
    dead_letters: tuple[str, ...] = ()


def stage(conninfo: str, epoch: Epoch, lines: Callable[[str], Iterable[Lines]]) -> tuple[uuid.UUID, int]:
    """Copies the rows of one task in one transaction.  ``lines`` gets the text with which each line has to begin."""
    token, number = uuid.uuid4(), 0
    try:
        with (
            database.connect(conninfo) as connection,
            connection.transaction(),
            connection.cursor() as cursor,
            cursor.copy(COPY.encode()) as copy,
        ):
            for rows, text in lines(f"{epoch.batch}\t{token}\t"):
                copy.write(text)
                number += rows
    except psycopg.OperationalError as error:
        raise DatabaseUnavailable(database.unavailable(error)) from None
    return token, number


def written(conninfo: str, epoch: Epoch) -> bool:
    """Whether the ledger says that this epoch has been enqueued.  Raises an error if it has later ones: after a crash
    Spark repeats the last one only, with the same rows.
    """
    with database.connect(conninfo) as connection:
        row = connection.execute("select epoch from pgqueue_ledger where run_id = %s", [epoch.run_id]).fetchone()
    if row is not None and row[0] > epoch.number:
        message = (
            f"The micro-batches of {epoch.run_id!r} up to {row[0]} were enqueued, and this one is {epoch.number}: the "
            "checkpoint is an older one, or a copy, and this micro-batch may have other rows. It was not enqueued. "
            "Begin a new checkpoint, behind the rows that were."
        )
        raise CheckpointBehind(message)
    return row is not None and row[0] == epoch.number


def enqueue(conninfo: str, epoch: Epoch, staged: Sequence[StagedRows], replay: str | None = None) -> int | None:
    """Enqueues the rows that tasks have staged.  Returns None if they had been enqueued before.

    ``replay`` is the name of a replay, which enqueues each message of the history once.

    A connection that breaks during the commit leaves the outcome unknown.  The ledger knows it, so a retry is safe.
    """
    tokens, rows = [one.token for one in staged], sum(one.rows for one in staged)
    values = [epoch.run_id, epoch.number, epoch.batch, tokens, rows]
    is_unknown = False
    for attempt in range(1, TRIES + 1):
        try:
            with database.connect(conninfo) as connection:
                if replay is None:  # the function of 0.1.0 knows no replays
                    row = connection.execute(ENQUEUE, values).fetchone()
                else:
                    row = connection.execute(REPLAY, [*values, replay]).fetchone()
                with suppress(psycopg.Error):  # what is left of others goes next time
                    connection.execute("select pgqueue_staged_discard()")
                found = None if row is None else row[0]
                # What the ledger has then is what the try before has committed, or a writer of the same rows.
                return rows if found is None and is_unknown else found
        except psycopg.errors.RaiseException:  # behind the look into the ledger, which has no earlier try then
            raise
        except (psycopg.Error, DatabaseUnavailable) as error:
            is_unknown = is_unknown or leaves_the_outcome_unknown(error)
            may_pass = isinstance(error, psycopg.OperationalError | DatabaseUnavailable)
            if may_pass and attempt < TRIES:
                continue
            # Spark repeats a micro-batch, and a replay can be repeated as it is.
            is_told = is_unknown and replay is None and epoch.number == BATCH
            if not (may_pass or is_told):
                raise
            happened = error if isinstance(error, DatabaseUnavailable) else database.unavailable(error)
            unknown = UNKNOWN.format(run_id=epoch.run_id) if is_told else ""
            raise DatabaseUnavailable(f"{happened}{unknown}") from None
    raise AssertionError


def leaves_the_outcome_unknown(error: Exception) -> bool:
    """Whether the connection broke, or the server ended the session, while a statement was under way."""
    if not isinstance(error, psycopg.OperationalError):
        return False
    return error.sqlstate is None or error.diag.severity_nonlocalized in {"FATAL", "PANIC"}


def discard(conninfo: str, epoch: Epoch) -> None:
    with database.connect(conninfo) as connection:
        connection.execute("select pgqueue_staged_discard(%s)", [epoch.batch])


def give_up(options: PipelineOptions, epoch: Epoch) -> None:
    """Discards what a failed run has staged, if possible: an error of this, or of the project's function that returns
    the URL, would hide why the run failed, and rows that are left are deleted after a week.
    """
    with suppress(Exception):
        discard(database.writing(options), epoch)
