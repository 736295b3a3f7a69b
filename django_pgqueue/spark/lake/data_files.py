"""Files with rows: tasks write them, and the driver looks at each.

PostgreSQL's driver returns Arrow batches, so the rows bypass Spark, and an export takes a quarter of the time.
"""

from __future__ import annotations

import datetime as dt
from functools import partial
from typing import TYPE_CHECKING, NamedTuple

import pyarrow.parquet as pq

from django_pgqueue.spark.lake.errors import NotShared
from django_pgqueue.spark.lake.lake import DataFile
from django_pgqueue.spark.lake.open_files import OpenFiles, Written
from django_pgqueue.spark.lake.schema import DAY_OF

if TYPE_CHECKING:
    from pyarrow.fs import FileSystem

    from django_pgqueue.spark.lake.lake import Lake
    from django_pgqueue.spark.lake.place import Place
    from django_pgqueue.spark.reader import PgQueueReader
    from django_pgqueue.spark.slices import Slice


class Counted(NamedTuple):
    file: DataFile
    ids: int
    """The sum of the ids: a second check on which rows these are."""


def fill(lake: Lake, reader: PgQueueReader) -> list[Counted]:
    """Writes the rows of a reader into the folder of its table.  No reader sees the files before a commit."""
    table = reader.options.table
    parts, task = reader.partitions(), partial(write, reader, lake.place / table)
    # Only the files that tasks return count: those of a killed task, or of one that ran twice, are deleted later.
    files = lake.spark.sparkContext.parallelize(parts, max(1, len(parts))).flatMap(task).collect()
    return [seen(lake, table, file) for file in files]


def write(reader: PgQueueReader, place: Place, part: Slice) -> list[Written]:
    """Task of an executor, for a part of the history."""
    files = OpenFiles(place=place, time=DAY_OF[reader.options.table])
    for batch in reader.read(part):
        files.add(batch)
    return files.close()


def seen(lake: Lake, table: str, written: Written) -> Counted:
    """Returns a file that an executor has written, as the driver sees it: executors may have disks of their own."""
    place = lake.place / table
    try:
        file = file_at(place.files, written.path)
    except FileNotFoundError:
        file = None
    if file is None or file.rows != written.rows:
        message = (
            f"Executors have written {written.rows:,} rows into {table}/{written.path}, and in {lake.root} this "
            f"machine sees {file.rows if file else 'none'} of them: the executors do not share the driver's disk. "
            "Nothing was made visible. Use a folder that all machines have under the same name, an object store, or "
            "run on this machine: --master 'local[*]'."
        )
        raise NotShared(message)
    return Counted(file, written.ids)


def file_at(files: FileSystem, path: str) -> DataFile:
    """Describes a file by its footer, which the driver reads itself."""
    with files.open_input_file(path) as file:
        footer, size = pq.read_metadata(file), file.size()
    return DataFile(
        path=path,
        date=dt.date.fromisoformat(path.partition("/")[0].removeprefix("date=")),
        rows=int(footer.num_rows),
        bytes=int(size),
    )
