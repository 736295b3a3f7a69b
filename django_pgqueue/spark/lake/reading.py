"""The tables of a lake as DataFrames."""

from __future__ import annotations

from typing import TYPE_CHECKING

from django_pgqueue.spark.lake.errors import LakeError
from django_pgqueue.spark.lake.kept_columns import KeptColumns
from django_pgqueue.spark.lake.lake import Lake
from django_pgqueue.spark.lake.schema import SCHEMAS

if TYPE_CHECKING:
    import datetime as dt
    import os

    from pyspark.sql import DataFrame, SparkSession

    from django_pgqueue.spark.lake.manifest import DataFile


def read_lake(
    spark: SparkSession,
    path: str | os.PathLike[str],
    table: str = "attempts",
    *,
    since: dt.date | None = None,
    until: dt.date | None = None,
    version: int | None = None,
) -> DataFrame:
    """Returns a table as the lake's manifest lists it, whatever other runs write meanwhile.

    ``since`` and ``until`` are days (UTC, both inclusive) of ``finished_at``, or of ``hour`` in reports: files of other
    days are not even opened.
    """
    if table not in SCHEMAS:
        message = f"The lake has no table {table!r}. Its tables are {', '.join(SCHEMAS)}."
        raise LakeError(message)
    lake = Lake.open(spark, path)
    return read_files(lake, table, lake.manifest(version).files(table, since=since, until=until))


def read_files(lake: Lake, table: str, files: list[DataFile]) -> DataFrame:
    schema = KeptColumns.of(lake.manifest()).schema() if table == "attempts" else SCHEMAS[table]
    if not files:
        return lake.spark.createDataFrame([], schema)
    return lake.spark.read.schema(schema).parquet(*(lake.files.url(file.path) for file in files))
