"""The data source ``pgqueue``: register it with ``spark.dataSource.register(PgQueueDataSource)``."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark.sql.datasource import DataSource

from django_pgqueue.spark import database, schema as schemas
from django_pgqueue.spark.options import Options

if TYPE_CHECKING:
    from pyspark.sql.types import StructType

    from django_pgqueue.spark.reader import PgQueueReader


class PgQueueDataSource(DataSource):
    """Reads finished attempts and waiting messages, and writes messages, in batches and in streams."""

    @classmethod
    def name(cls) -> str:
        return "pgqueue"

    @property
    def checked(self) -> Options:
        options = Options.of(self.options)
        database.check(options)
        return options

    def schema(self) -> StructType:
        options = self.checked
        return schemas.chosen(options.table, options.columns)

    def reader(self, schema: StructType) -> PgQueueReader:
        from django_pgqueue.spark.reader import PgQueueReader  # noqa: PLC0415 -- only what a task needs

        options = self.checked
        return PgQueueReader(options, schemas.checked(options.table, schema))
