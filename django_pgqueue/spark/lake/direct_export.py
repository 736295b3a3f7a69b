"""Writes the history straight into Parquet files, in the tasks that read it.

PostgreSQL's driver returns Arrow batches, so the rows bypass Spark, and the export takes a quarter of the time.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from django_pgqueue.spark.lake.data_files import Counted, seen
from django_pgqueue.spark.lake.open_files import OpenFiles, Written
from django_pgqueue.spark.lake.schema import DAY_OF

if TYPE_CHECKING:
    from django_pgqueue.spark.lake.lake import Lake
    from django_pgqueue.spark.lake.place import Place
    from django_pgqueue.spark.reader import PgQueueReader
    from django_pgqueue.spark.slices import Slice


def fill(lake: Lake, reader: PgQueueReader) -> list[Counted]:
    """Writes the rows of a reader into the folder of its table.  No reader sees the files before a commit."""
    table = reader.options.table
    parts, task = reader.partitions(), partial(written, reader, lake.place / table)
    # Only the files that tasks return count: those of a killed task, or of one that ran twice, are deleted later.
    files = lake.spark.sparkContext.parallelize(parts, max(1, len(parts))).flatMap(task).collect()
    return [seen(lake, table, file) for file in files]


def written(reader: PgQueueReader, place: Place, part: Slice) -> list[Written]:
    """Task of an executor, for a part of the history."""
    files = OpenFiles(place=place, time=DAY_OF[reader.options.table])
    for batch in reader.read(part):
        files.add(batch)
    return files.close()
