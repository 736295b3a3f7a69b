"""The tables of a lake as DataFrames.  Spark reads the files that Delta's log lists, so it needs no jar of Delta's."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql.datasource import DataSource, DataSourceReader, InputPartition
from pyspark.sql.types import StructType

from django_pgqueue.spark.lake.errors import LakeError
from django_pgqueue.spark.lake.kept_columns import KeptColumns
from django_pgqueue.spark.lake.lake import Lake, files_of
from django_pgqueue.spark.lake.place import Place
from django_pgqueue.spark.lake.schema import HISTORY, SCHEMAS
from django_pgqueue.spark.schema import arrow
from django_pgqueue.spark.source import registered

if TYPE_CHECKING:
    import datetime as dt
    import os
    from collections.abc import Iterable, Iterator, Sequence

    from pyspark.sql import DataFrame, SparkSession

    from django_pgqueue.spark.lake.lake import DataFile

AS_WRITTEN = {"datetimeRebaseMode": "CORRECTED", "ignoreCorruptFiles": "false", "ignoreMissingFiles": "false"}
"""Every file with its own times, whatever the session says about files of others."""


def read_lake(
    spark: SparkSession,
    path: str | os.PathLike[str],
    table: str = "attempts",
    *,
    columns: Sequence[str] = (),
    since: dt.date | None = None,
    until: dt.date | None = None,
    version: int | None = None,
) -> DataFrame:
    """Returns a table at a version, whatever other runs write meanwhile.

    ``since`` and ``until`` are days (UTC, both inclusive) of ``finished_at``, ``asked_at`` or ``hour``: files of other
    days are not even opened.  Without ``columns`` all are there: Spark leaves those out that nobody asks for in a
    folder, and in an object store only ``columns`` does.
    """
    if table not in SCHEMAS:
        message = f"The lake has no table {table!r}. Its tables are {', '.join(SCHEMAS)}."
        raise LakeError(message)
    lake = Lake.open(spark, path)
    found = lake.table(table, version)
    return read_files(lake, table, files_of(found, since, until) if found else [], columns)


def read_files(lake: Lake, table: str, files: Iterable[DataFile], columns: Sequence[str] = ()) -> DataFrame:
    schema = KeptColumns.of(lake.version()).schema(table) if table in HISTORY else SCHEMAS[table]
    if unknown := [name for name in columns if name not in schema.names]:
        message = f"The table {table} of this lake has no column {unknown[0]!r}. It has {', '.join(schema.names)}."
        raise LakeError(message)
    schema = StructType([schema[name] for name in columns]) if columns else schema
    place, paths = lake.place / table, [file.path for file in files]
    if not paths:
        return lake.spark.createDataFrame([], schema)
    if place.is_folder:
        # Not as_uri(): Spark takes the path literally and does not decode percent signs.
        read = lake.spark.read.schema(schema).options(**AS_WRITTEN)
        return read.parquet(*(f"file://{place.url}/{path}" for path in paths))
    options = {"location": place.url, "secrets": json.dumps(dict(place.options)), "files": json.dumps(paths)}
    return registered(lake.spark, StoredFiles).read.format(StoredFiles.name()).schema(schema).options(**options).load()


class StoredFiles(DataSource):
    """Files of an object store, read as they were written, so that Spark needs no jar for the store."""

    @classmethod
    def name(cls) -> str:
        return "pgqueue_stored_files"

    def reader(self, schema: StructType) -> StoredFilesReader:
        place = Place(self.options["location"], json.loads(self.options["secrets"]))
        return StoredFilesReader(place=place, paths=json.loads(self.options["files"]), schema=arrow(schema))


@dataclass(kw_only=True)
class StoredFilesReader(DataSourceReader):
    place: Place
    paths: list[str]
    schema: pa.Schema

    def partitions(self) -> list[InputPartition]:
        return [InputPartition(path) for path in self.paths]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        with pq.ParquetFile(partition.value, filesystem=self.place.files) as file:
            known = [name for name in self.schema.names if name in file.schema_arrow.names]
            for rows in file.iter_batches(columns=known):
                columns = [
                    rows.column(field.name).cast(field.type)
                    if field.name in known
                    else pa.nulls(rows.num_rows, field.type)
                    for field in self.schema
                ]
                yield pa.RecordBatch.from_arrays(columns, schema=self.schema)
