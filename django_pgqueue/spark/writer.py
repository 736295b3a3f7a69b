"""``df.write.format("pgqueue")``: rows become messages, all of them or none, once.

Tasks stage their rows.  The driver enqueues the rows of the tasks that Spark counts, in one transaction with a row of
the ledger.  So the rows of other tries of a task, and the spread of rows over tasks, make no difference.
"""

from __future__ import annotations

import sys
import uuid
from typing import TYPE_CHECKING

from pyspark import TaskContext
from pyspark.sql.datasource import DataSourceArrowWriter, DataSourceStreamArrowWriter, WriterCommitMessage

from django_pgqueue.spark import database, dead_letters, staging
from django_pgqueue.spark.errors import InvalidRow, SparkQueueError
from django_pgqueue.spark.staging import Epoch, StagedRows

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    import pyarrow as pa

    from django_pgqueue.spark.options import PipelineOptions
    from django_pgqueue.spark.rows import Intake, Rejected
    from django_pgqueue.spark.staging import Lines

SHOWN = 5


class PgQueueWriter(DataSourceArrowWriter):
    """Writer of a batch.  Spark pickles it for the executors, so they share the epoch with the driver's commit."""

    def __init__(self, options: PipelineOptions) -> None:
        self.options = options
        self.epoch = Epoch(run_id=options.run_id or f"batch {uuid.uuid4()}", writer=uuid.uuid4().hex)

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        return write(self.options, self.epoch, iterator)

    def commit(self, messages: Sequence[WriterCommitMessage | None]) -> None:
        commit(self.options, self.epoch, messages)

    def abort(self, messages: Sequence[WriterCommitMessage | None]) -> None:  # noqa: ARG002 -- Spark's signature
        staging.give_up(self.options, self.epoch)


class PgQueueStreamWriter(DataSourceStreamArrowWriter):
    """Writer of micro-batches.  Spark names the stream and the micro-batch to the tasks, not to the writer."""

    def __init__(self, options: PipelineOptions) -> None:
        self.options = options

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        return write(self.options, current_epoch(self.options), iterator)

    def commit(self, messages: Sequence[WriterCommitMessage | None], batchId: int) -> None:  # noqa: ARG002, N803
        for epoch in {message.epoch for message in messages if isinstance(message, StagedRows)}:
            commit(self.options, epoch, messages)

    def abort(self, messages: Sequence[WriterCommitMessage | None], batchId: int) -> None:  # noqa: ARG002, N803
        for epoch in {message.epoch for message in messages if isinstance(message, StagedRows)}:
            staging.give_up(self.options, epoch)


def write(options: PipelineOptions, epoch: Epoch, batches: Iterator[pa.RecordBatch]) -> StagedRows:
    """Stages all rows of a task in one transaction, or raises an error that names those that cannot become messages."""
    from django_pgqueue.spark.rows import Intake  # noqa: PLC0415 -- planning does without pyarrow

    conninfo = database.writing(options)
    if staging.written(conninfo, epoch):
        for _ in batches:  # a replay: Spark wants the rows consumed, the queue has them
            pass
        return StagedRows(epoch=epoch, token=uuid.uuid4(), rows=0)
    intake = Intake(tasks=options.tasks or {}, max_content_bytes=options.max_content_bytes)
    token, rows = staging.stage(conninfo, epoch, lambda start: _lines(options, intake, batches, start))
    put_aside = dead_letters.written_down(intake.rejected, _place())
    return StagedRows(epoch=epoch, token=token, rows=rows, dead_letters=put_aside)


def commit(options: PipelineOptions, epoch: Epoch, messages: Sequence[WriterCommitMessage | None]) -> None:
    """Enqueues the staged rows, on the driver, when all tasks have succeeded."""
    conninfo, staged = database.writing(options), [message for message in messages if isinstance(message, StagedRows)]
    is_empty = epoch.number == staging.BATCH and not any(one.rows for one in staged)
    lines = [line for one in staged for line in one.dead_letters]
    if (is_empty or lines) and not staging.written(conninfo, epoch):
        dead_letters.keep(options.dead_letter_path or "", epoch.name, lines)
        if is_empty:  # a run with no rows is none: it may be too early, and its name has to do for the rows that come
            staging.discard(conninfo, epoch)
            return
    enqueued = staging.enqueue(conninfo, epoch, staged, options.replay)
    if epoch.number != staging.BATCH:
        return
    if enqueued is None:
        sys.stderr.write(f"The run {epoch.run_id!r} was enqueued before: nothing was enqueued. See option runId.\n")
    elif options.dead_letter_path and options.run_id and not lines:
        dead_letters.forget(options.dead_letter_path, epoch.name)


def current_epoch(options: PipelineOptions) -> Epoch:
    """Returns the epoch of the micro-batch that this task belongs to.

    The query's id is in its checkpoint.  A new checkpoint counts its micro-batches from 0 again, so it has to be a new
    run, whatever the option runId says.
    """
    context = TaskContext.get()
    number = context.getLocalProperty("streaming.sql.batchId") if context else None
    query = context.getLocalProperty("sql.streaming.queryId") if context else None
    if number is None or query is None:
        message = (
            "Spark does not name the streaming query and the micro-batch of this write. Use writeStream for streams."
        )
        raise SparkQueueError(message)
    return Epoch(run_id=f"{options.run_id or 'stream'} {query}", number=int(number))


def _lines(options: PipelineOptions, intake: Intake, batches: Iterator[pa.RecordBatch], start: str) -> Iterator[Lines]:
    for batch in batches:
        yield from intake.lines(batch, start)
        if intake.rejected and options.dead_letter_path is None:
            raise InvalidRow(_refusal(intake.rejected))
        dead_letters.check(intake.rejected)


def _refusal(rejected: list[Rejected]) -> str:
    shown = "; ".join(f"{_place()}, {row}" for row in rejected[:SHOWN])
    more = f"; and {len(rejected) - SHOWN} more" if len(rejected) > SHOWN else ""
    return (
        f"Nothing was enqueued, because not every row can become a message: {shown}{more}. Set the option "
        "deadLetterPath to write such rows to a folder instead."
    )


def _place() -> str:
    context = TaskContext.get()
    return f"partition {context.partitionId() if context else 0}"
