"""``spark.readStream.format("pgqueue")``: follows the history, and neither skips nor repeats a row.

The offset is a transaction: the stream has read the rows of all earlier ones.  The offset never passes the oldest
transaction that still runs, so no row can appear behind it, in whatever order transactions commit.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from pyspark.sql.datasource import DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import ReadLimit, ReadMaxRows, SupportsTriggerAvailableNow

from django_pgqueue.spark import database, slices
from django_pgqueue.spark.errors import HistoryReplaced, InvalidOption
from django_pgqueue.spark.reader import PgQueueReader
from django_pgqueue.spark.snapshot import BEHIND, Snapshot, catch_up, horizon, make_durable

if TYPE_CHECKING:
    from collections.abc import Iterator

    import psycopg
    import pyarrow as pa
    from pyspark.sql.types import StructType

    from django_pgqueue.spark.options import PipelineOptions
    from django_pgqueue.spark.slices import Slice

Offset = dict[str, Any]


class PgQueueStreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """The stream's reader, which lives on the driver as long as the stream; only ``read`` runs on executors."""

    def __init__(self, options: PipelineOptions, schema: StructType) -> None:
        if options.table != "attempts":
            message = "A stream can follow only the history (table attempts): waiting messages change, and are deleted."
            raise InvalidOption(message)
        self.options = options
        self.reader = PgQueueReader(options, schema)
        self.target: int | None = None
        self.step: int | None = None

    def initialOffset(self) -> Offset:  # noqa: N802 -- Spark's name
        if self.options.starting_offset == "earliest":
            return {"transaction": self.options.from_transaction or 0}
        with self._connection() as connection:
            return {"transaction": horizon(connection)}

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802
        return ReadMaxRows(self.options.max_rows_per_batch)

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802
        with self._connection() as connection:
            self.target = Snapshot.taken(connection).horizon

    def latestOffset(self, start: Offset, limit: ReadLimit) -> Offset:  # noqa: N802
        rows = limit.max_rows if isinstance(limit, ReadMaxRows) else None
        return {"transaction": self.latest(int(start["transaction"]), rows)}

    def latest(self, first: int, rows: int | None) -> int:
        """Returns the end of the batch that begins at ``first``: about ``rows`` at most (None: all), or ``first``
        itself when there is nothing to read.
        """
        with self._connection() as connection:
            if self.options.replica_variable is not None:
                catch_up(lambda: bool(connection.execute(BEHIND.format(first).encode()).fetchone()), first)
            end = Snapshot.taken(connection).horizon
            if first > end:
                message = (
                    f"The stream has followed the history up to transaction {first}, and this server is at {end}: it "
                    "is another server, or was restored. Begin a new stream, with a new checkpoint."
                )
                raise HistoryReplaced(message)
            if self.target is not None:
                end = max(first, min(end, self.target))
            if not slices.count(connection, first, end, limit=0):
                return first  # transactions that wrote no attempt need no micro-batch
            make_durable(connection)
            return end if rows is None else self._bounded(connection, first, end, rows)

    def partitions(self, start: Offset, end: Offset) -> list[Slice]:
        first, last = int(start["transaction"]), int(end["transaction"])
        if first == last:
            return []
        at_most = self.options.partitions_at_most
        with self._connection() as connection:
            rows = slices.count(connection, first, last, limit=slices.ROWS_A_TASK * at_most)
        parts = slices.parts(rows, at_most=at_most)
        return self.reader.planned(parts, slices.between("transaction_id", first, last), reached=last)

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        return self.reader.read(partition)

    def _connection(self) -> psycopg.Connection:
        return database.connect(database.reading(self.options))

    def _bounded(self, connection: psycopg.Connection, first: int, end: int, rows: int) -> int:
        """Returns an end with at most so many rows before it, or with the rows of a single transaction.

        Transactions differ in size, and the block range index has no order.  So the loop guesses a step from the last
        one, and halves it until it fits.  Each guess counts at most one row too many.
        """
        begin = first
        while True:
            step = min(end - begin, self.step * 2 if self.step else end - begin)
            while (found := slices.count(connection, begin, begin + step, limit=rows)) > rows and step > 1:
                step //= 2
            if found or begin + step >= end:
                break
            begin += step  # no rows there
        self.step = step if begin + step < end else None
        return begin + step
