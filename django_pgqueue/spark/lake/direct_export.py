"""Writes the history straight into Parquet files, in the tasks that read it.

PostgreSQL's driver returns Arrow batches, so the rows bypass Spark, and the export takes a quarter of the time.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from django_pgqueue.spark.lake.data_files import Counted, seen
from django_pgqueue.spark.lake.open_files import OpenFiles, Written
from django_pgqueue.spark.lake.schema import DAY_OF

if TYPE_CHECKING:
    from collections.abc import Iterator

    from django_pgqueue.spark.lake.lake import Lake
    from django_pgqueue.spark.lake.place import Place
    from django_pgqueue.spark.reader import PgQueueReader
    from django_pgqueue.spark.slices import Slice


def fill(lake: Lake, reader: PgQueueReader) -> list[Counted]:
    """Writes the rows of a reader into the folder of its table.  No reader sees the files before a commit."""
    table = reader.options.table
    task = Task(reader=reader, place=lake.place / table)
    parts = reader.partitions()
    # Only the files that tasks return count: those of a killed task, or of one that ran twice, are deleted later.
    written = lake.spark.sparkContext.parallelize(parts, max(1, len(parts))).flatMap(task).collect()
    return [seen(lake, table, file) for file in written]


@dataclass(kw_only=True)
class Task:
    """Task that an executor calls with a part of the history."""

    reader: PgQueueReader
    place: Place

    def __call__(self, part: Slice) -> Iterator[Written]:
        files = OpenFiles(place=self.place, time=DAY_OF[self.reader.options.table])
        for batch in self.reader.read(part):
            files.add(batch)
        yield from files.close()
