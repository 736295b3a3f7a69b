"""The data source ``pgqueue``: register it with ``spark.dataSource.register(PgQueueDataSource)``."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark.sql.datasource import DataSource

from django_pgqueue.spark import schema as schemas
from django_pgqueue.spark.errors import InvalidOption
from django_pgqueue.spark.options import PipelineOptions

if TYPE_CHECKING:
    from collections.abc import Iterable

    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.types import StructType

    from django_pgqueue.spark.reader import PgQueueReader
    from django_pgqueue.spark.stream import PgQueueStreamReader
    from django_pgqueue.spark.writer import PgQueueStreamWriter, PgQueueWriter


def registered(spark: SparkSession, source: type[DataSource] | None = None) -> SparkSession:
    """Registers a source, by default ``pgqueue``, makes the session the active one of this thread and returns it."""
    # A write looks its source up in the active session, whichever session made the DataFrame (SparkClassNotFound), and
    # so does a registration: it refuses what another session has.
    spark.createDataFrame([], "nothing int")
    spark.dataSource.register(source or PgQueueDataSource)
    return spark


def read(
    spark: SparkSession, table: str = "attempts", *, columns: Iterable[str] = (), where: str = "", **options: str
) -> DataFrame:
    """Returns rows of a table; PostgreSQL sends only these columns of those that fulfil a condition in SQL.

    >>> read(spark, columns=["task"], where="status = 'failed'").count()  # doctest: +SKIP
    """
    asked = {"table": table, "columns": ",".join(columns), "where": where, **options}
    given = {name: value for name, value in asked.items() if value}
    return registered(spark).read.format("pgqueue").options(**given).load()


class PgQueueDataSource(DataSource):
    """Reads finished attempts and waiting messages, and writes messages, in batches and in streams."""

    @classmethod
    def name(cls) -> str:
        return "pgqueue"

    def schema(self) -> StructType:
        options = PipelineOptions.of(self.options)
        return schemas.chosen(options.table, options.columns)

    def reader(self, schema: StructType) -> PgQueueReader:
        from django_pgqueue.spark.reader import PgQueueReader  # noqa: PLC0415 -- only what a task needs

        options = PipelineOptions.of(self.options)
        if options.table != "attempts" and (options.from_transaction, options.to_transaction) != (None, None):
            message = f"Options fromTransaction and toTransaction are about attempts, and table is {options.table}."
            raise InvalidOption(message)
        return PgQueueReader(options, schemas.checked(options.table, schema))

    def writer(self, schema: StructType, overwrite: bool) -> PgQueueWriter:
        from django_pgqueue.spark.writer import PgQueueWriter  # noqa: PLC0415

        return PgQueueWriter(self._for_writing(schema, overwrite=overwrite))

    def streamWriter(self, schema: StructType, overwrite: bool) -> PgQueueStreamWriter:  # noqa: N802
        from django_pgqueue.spark.writer import PgQueueStreamWriter  # noqa: PLC0415

        return PgQueueStreamWriter(self._for_writing(schema, overwrite=overwrite))

    def streamReader(self, schema: StructType) -> PgQueueStreamReader:  # noqa: N802
        from django_pgqueue.spark.stream import PgQueueStreamReader  # noqa: PLC0415

        options = PipelineOptions.of(self.options)
        if options.to_transaction is not None:
            message = f"Option toTransaction is {options.to_transaction}, and a stream has no end. Use spark.read."
            raise InvalidOption(message)
        return PgQueueStreamReader(options, schemas.checked(options.table, schema))

    def _for_writing(self, schema: StructType, *, overwrite: bool) -> PipelineOptions:
        """Checks everything that can be known before a task runs."""
        from django_pgqueue.spark import database, messages  # noqa: PLC0415

        options = PipelineOptions.of(self.options)
        if overwrite:
            message = 'A write cannot replace a queue, it adds messages. Use mode("append").'
            raise InvalidOption(message)
        if options.mask or options.columns:
            message = "Options mask and columns are about reads. Select the columns of the DataFrame that you write."
            raise InvalidOption(message)
        messages.check(schema, options.tasks or {})
        database.writing(options)
        return options
