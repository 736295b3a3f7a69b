"""Files with rows, as the driver sees them."""

from __future__ import annotations

import datetime as dt
from typing import TYPE_CHECKING, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from django_pgqueue.spark.lake.errors import NotShared
from django_pgqueue.spark.lake.lake import DataFile

if TYPE_CHECKING:
    from pyarrow.fs import FileSystem

    from django_pgqueue.spark.lake.lake import Lake
    from django_pgqueue.spark.lake.open_files import Written


class Counted(NamedTuple):
    file: DataFile
    ids: int
    """The sum of the ids: a second check on which rows these are."""


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


def sum_of_ids(files: FileSystem, path: str) -> tuple[int, int]:
    """Returns the number of a file's rows and the sum of their ids, read back.  A step has that of its message."""
    rows = ids = 0
    with pq.ParquetFile(path, filesystem=files) as file:
        for batch in file.iter_batches(columns=["id" if "id" in file.schema_arrow.names else "message_id"]):
            rows += batch.num_rows
            # Arrow's own sum of whole numbers has 64 bits.
            ids += int(pc.sum(batch.column(0).cast(pa.decimal128(38))).as_py() or 0)
    return rows, ids
