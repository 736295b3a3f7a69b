"""``spark.read.format("pgqueue")``: one moment of the history, or of what waits, in several tasks."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark.sql.datasource import DataSourceReader, Filter, InputPartition

from django_pgqueue.spark import database, filters, query, schema as schemas, slices
from django_pgqueue.spark.slices import Slice
from django_pgqueue.spark.snapshot import Snapshot

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    import psycopg
    import pyarrow as pa
    from pyspark.sql.types import StructType

    from django_pgqueue.spark.options import Options


class PgQueueReader(DataSourceReader):
    """Spark pickles it to its executors after the filters were pushed and before the partitions are made."""

    def __init__(self, options: Options, schema: StructType) -> None:
        self.options = options
        self.schema = schema
        self.pushed: list[Filter] = []

    def pushFilters(self, filters_: list[Filter]) -> Iterable[Filter]:  # noqa: N802 -- Spark's name
        whole = schemas.TABLES[self.options.table]
        for filter_ in filters_:
            if filters.condition(filter_, whole) is None:
                yield filter_
            else:
                self.pushed.append(filter_)

    def partitions(self) -> list[Slice]:
        with database.connect(database.reading(self.options)) as connection:
            return self._of_messages(connection) if self.options.table == "messages" else self._of_attempts(connection)

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        from django_pgqueue.spark import fetch  # noqa: PLC0415 -- planning does not need it

        assert isinstance(partition, Slice)  # noqa: S101 -- Spark gives back what partitions() made
        conninfo, arrow = database.reading(self.options), schemas.arrow(self.schema)
        pushed = [found for one in self.pushed if (found := filters.condition(one, schemas.TABLES[self.options.table]))]
        for conditions in partition.conditions():
            statement = query.select(self.options.table, self.schema, [*pushed, *conditions])
            yield from fetch.batches(conninfo, statement, arrow)

    def _of_messages(self, connection: psycopg.Connection) -> list[Slice]:
        wanted = min(self.options.num_partitions or 1, self.options.max_connections)
        return [Slice(ranges=ranges) for ranges in slices.of_messages(connection, wanted)]

    def _of_attempts(self, connection: psycopg.Connection) -> list[Slice]:
        snapshot = Snapshot.taken(connection)
        first, end = self.options.from_transaction, self.options.to_transaction
        at_most = self.options.partitions_at_most
        found: list[tuple[slices.Part, ...]] | list[tuple[slices.Range, ...]] | None = None
        if first:
            found = slices.of_transactions(connection, first, min(end or snapshot.end, snapshot.end), at_most=at_most)
        if found is None:
            earliest, latest = filters.times(self.pushed, "finished_at")
            exactly = at_most if self.options.num_partitions else None
            found = slices.of_days(connection, at_most=at_most, earliest=earliest, latest=latest, exactly=exactly)
        return [Slice(ranges=ranges, snapshot=snapshot, transactions=(first, end)) for ranges in found]
