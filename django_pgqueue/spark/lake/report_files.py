"""Writes the rows of a report, in the task that computes the last of them."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import islice
from typing import TYPE_CHECKING, Any

import pyarrow as pa
from pyspark.sql import functions as F  # noqa: N812 -- its usual name

from django_pgqueue.spark.lake.data_files import seen
from django_pgqueue.spark.lake.open_files import OpenFiles
from django_pgqueue.spark.lake.schema import SCHEMAS
from django_pgqueue.spark.schema import arrow

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from pyspark.sql import DataFrame

    from django_pgqueue.spark.lake.lake import DataFile, Lake
    from django_pgqueue.spark.lake.open_files import Written
    from django_pgqueue.spark.lake.place import Place


BATCH_ROWS = 10_000


def write(lake: Lake, rows: DataFrame, table: str) -> list[DataFile]:
    """Writes rows into the folder of a table, in one task because they are few, and looks at what is there."""
    shaped = rows.select(
        *(
            F.unix_micros(field.name) if field.name == "hour" else F.col(field.name).cast(field.dataType)
            for field in SCHEMAS[table].fields
        )
    )
    writing = Writing(place=lake.place / table, schema=arrow(SCHEMAS[table]))
    return [seen(lake, table, file).file for file in shaped.coalesce(1).rdd.mapPartitions(writing).collect()]


@dataclass(kw_only=True)
class Writing:
    place: Place
    schema: pa.Schema

    def __call__(self, rows: Iterable[Sequence[Any]]) -> list[Written]:
        files, rest = OpenFiles(place=self.place, time="hour"), iter(rows)
        while batch := list(islice(rest, BATCH_ROWS)):
            columns = [
                pa.array([list(value.items()) if isinstance(value, dict) else value for value in column], field.type)
                for field, column in zip(self.schema, zip(*batch, strict=True), strict=True)
            ]
            files.add(pa.RecordBatch.from_arrays(columns, schema=self.schema))
        return files.close()
