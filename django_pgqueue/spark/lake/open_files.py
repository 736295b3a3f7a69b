"""The Parquet files that a task writes: one or more for each day, in a folder or in a store."""

from __future__ import annotations

import uuid
from collections import defaultdict
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

if TYPE_CHECKING:
    import datetime as dt
    from collections.abc import Iterator

    from pyarrow.fs import FileSystem

    from django_pgqueue.spark.lake.place import Place

HELD_BYTES = 128 * 2**20
"""Memory that a task fills before it writes: the rows of one write are a row group."""
FILE_BYTES = 256 * 2**20
OPEN_FILES = 64
GROWING = ("id", "message_id", "dequeue_at", "transaction_id", "created_at", "started_at", "finished_at")
REPEATED = ("status", "queue", "channel", "task", "worker", "error_class", "error_message", "traceback")


class Written(NamedTuple):
    """A file as it was read back."""

    path: str
    rows: int
    ids: int


@dataclass(kw_only=True)
class OpenFiles:
    """The files of a task: they are large, few are open, and memory holds only a part of them."""

    place: Place
    time: str
    """The column whose day decides."""
    held: dict[dt.date, list[pa.RecordBatch]] = field(default_factory=lambda: defaultdict(list))
    held_bytes: int = 0
    writers: dict[dt.date, tuple[str, Any, Any]] = field(default_factory=dict)
    written: list[Written] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.files = self.place.files

    def add(self, batch: pa.RecordBatch) -> None:
        for day, rows in by_day(batch, self.time):
            self.held[day].append(rows)
            self.held_bytes += rows.nbytes
            if self.held_bytes > HELD_BYTES:
                self._write_all()

    def close(self) -> list[Written]:
        self._write_all()
        for day in list(self.writers):
            self._close(day)
        return self.written

    def _write_all(self) -> None:
        for day in list(self.held):
            self._write(day)
        self.held_bytes = 0

    def _write(self, day: dt.date) -> None:
        rows = pa.Table.from_batches(self.held.pop(day)).combine_chunks()
        path, sink, writer = self.writers.pop(day) if day in self.writers else self._open(day, rows.schema)
        self.writers[day] = path, sink, writer  # goes to the end: the first one is the least recently used
        writer.write_table(rows, row_group_size=rows.num_rows)
        if sink.tell() > FILE_BYTES:
            self._close(day)
        while len(self.writers) > OPEN_FILES:
            self._close(next(iter(self.writers)))

    def _open(self, day: dt.date, schema: pa.Schema) -> tuple[str, Any, Any]:
        # Only the day stands in the path: Polars refuses a name=value in it that is no partition of the table.
        folder = f"date={day.isoformat()}"
        path = f"{folder}/{uuid.uuid4().hex}.parquet"
        if self.place.is_folder:
            self.files.create_dir(folder, recursive=True)
        sink = self.files.open_output_stream(path)
        writer = pq.ParquetWriter(
            sink,
            schema,
            compression="zstd",
            use_dictionary=[name for name in REPEATED if name in schema.names],
            column_encoding={name: "DELTA_BINARY_PACKED" for name in GROWING if name in schema.names},
        )
        return path, sink, writer

    def _close(self, day: dt.date) -> None:
        path, sink, writer = self.writers.pop(day)
        writer.close()
        sink.close()
        self.written.append(Written(path, *sum_of_ids(self.files, path)))


def by_day(batch: pa.RecordBatch, time: str) -> Iterator[tuple[dt.date, pa.RecordBatch]]:
    """Yields the rows of each day, in their original order."""
    days = pc.floor_temporal(batch.column(time), unit="day").cast(pa.date32())
    found = pc.unique(days)
    for day in found:
        yield day.as_py(), batch if len(found) == 1 else batch.filter(pc.equal(days, day))


def sum_of_ids(files: FileSystem, path: str) -> tuple[int, int]:
    """Returns the number of a file's rows and the sum of their ids, read back.  A step has that of its message."""
    rows = ids = 0
    with pq.ParquetFile(path, filesystem=files) as file:
        for batch in file.iter_batches(columns=["id" if "id" in file.schema_arrow.names else "message_id"]):
            rows += batch.num_rows
            # Arrow's own sum of whole numbers has 64 bits.
            ids += int(pc.sum(batch.column(0).cast(pa.decimal128(38))).as_py() or 0)
    return rows, ids
