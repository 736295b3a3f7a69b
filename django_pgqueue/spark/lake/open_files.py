"""The Parquet files that a task writes: one or more for each day and queue, in a folder or in a store."""

from __future__ import annotations

import datetime as dt
import uuid
from collections import defaultdict
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from django_pgqueue.spark.lake.data_files import sum_of_ids

if TYPE_CHECKING:
    from collections.abc import Iterator

    from django_pgqueue.spark.lake.place import Place

HELD_BYTES = 128 * 2**20
"""Memory that a task fills before it writes: the rows of one write are a row group."""
FILE_BYTES = 256 * 2**20
OPEN_FILES = 64
GROWING = ("id", "message_id", "dequeue_at", "transaction_id", "created_at", "started_at", "finished_at")
REPEATED = ("status", "queue", "channel", "task", "worker", "error_class", "error_message", "traceback")


class FileGroup(NamedTuple):
    """A day and a queue, whose rows have files of their own.  Steps have no queue."""

    day: int
    queue: str

    @property
    def date(self) -> str:
        return (dt.date(1970, 1, 1) + dt.timedelta(days=self.day)).isoformat()

    @property
    def folder(self) -> str:
        # Only the day stands in the path: Polars refuses a name=value in it that is no partition of the table.
        return f"date={self.date}"


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
    held: dict[FileGroup, list[pa.RecordBatch]] = field(default_factory=lambda: defaultdict(list))
    held_bytes: int = 0
    writers: dict[FileGroup, tuple[str, Any, Any]] = field(default_factory=dict)
    written: list[Written] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.files = self.place.files

    def add(self, batch: pa.RecordBatch) -> None:
        for group, rows in grouped(batch, self.time):
            self.held[group].append(rows)
            self.held_bytes += rows.nbytes
            if self.held_bytes > HELD_BYTES:
                self._write_all()

    def close(self) -> list[Written]:
        self._write_all()
        for group in list(self.writers):
            self._close(group)
        return self.written

    def _write_all(self) -> None:
        """Writes all groups, not only the largest: a few rows of a batch keep all of it in memory."""
        for group in list(self.held):
            self._write(group)
        self.held_bytes = 0

    def _write(self, group: FileGroup) -> None:
        rows = pa.Table.from_batches(self.held.pop(group)).combine_chunks()
        path, sink, writer = self.writers.pop(group) if group in self.writers else self._open(group, rows.schema)
        self.writers[group] = path, sink, writer  # goes to the end: the first one is the least recently used
        writer.write_table(rows, row_group_size=rows.num_rows)
        if sink.tell() > FILE_BYTES:
            self._close(group)
        while len(self.writers) > OPEN_FILES:
            self._close(next(iter(self.writers)))

    def _open(self, group: FileGroup, schema: pa.Schema) -> tuple[str, Any, Any]:
        path = f"{group.folder}/{uuid.uuid4().hex}.parquet"
        if self.place.is_folder:
            self.files.create_dir(group.folder, recursive=True)
        sink = self.files.open_output_stream(path)
        writer = pq.ParquetWriter(
            sink,
            schema,
            compression="zstd",
            use_dictionary=[name for name in REPEATED if name in schema.names],
            column_encoding={name: "DELTA_BINARY_PACKED" for name in GROWING if name in schema.names},
        )
        return path, sink, writer

    def _close(self, group: FileGroup) -> None:
        path, sink, writer = self.writers.pop(group)
        writer.close()
        sink.close()
        self.written.append(Written(path, *sum_of_ids(self.files, path)))


def grouped(batch: pa.RecordBatch, time: str) -> Iterator[tuple[FileGroup, pa.RecordBatch]]:
    """Yields the rows of each day and queue, in their original order."""
    days = pc.floor_temporal(batch.column(time), unit="day").cast(pa.date32()).cast(pa.int32())
    queues = batch.column("queue") if "queue" in batch.schema.names else pa.repeat("", batch.num_rows)
    keys = pa.RecordBatch.from_arrays([days, queues], ["day", "queue"])
    found = pa.Table.from_batches([keys]).group_by(["day", "queue"]).aggregate([([], "count_all")])
    groups = sorted((row["day"], row["queue"], row["count_all"]) for row in found.to_pylist())
    if len(groups) > 1:
        order = [("day", "ascending"), ("queue", "ascending")]
        batch = batch.take(pc.sort_indices(keys, sort_keys=order))
    start = 0
    for day, queue, rows in groups:
        yield FileGroup(day, queue), batch.slice(start, rows)
        start += rows
