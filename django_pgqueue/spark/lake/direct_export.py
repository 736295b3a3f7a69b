"""Writes the history straight into Parquet files, in the tasks that read it: for lakes in local folders.

PostgreSQL's driver returns Arrow batches, so the rows bypass Spark, and the export takes a quarter of the time.
Where only Hadoop can write (object stores, HDFS), ``data_files.stage`` does the same.
"""

from __future__ import annotations

import datetime as dt
import hashlib
import re
import uuid
from collections import defaultdict
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from django_pgqueue.spark.errors import NOT_STARTED, SparkQueueError, reason
from django_pgqueue.spark.lake.data_files import PLAIN_NAME, StagedFiles, named, not_shared, read_back, rows_in
from django_pgqueue.spark.lake.errors import NotShared
from django_pgqueue.spark.lake.lake import STAGING

if TYPE_CHECKING:
    from collections.abc import Iterator

    import pyarrow as pa

    from django_pgqueue.spark.lake.lake import Lake
    from django_pgqueue.spark.reader import PgQueueReader
    from django_pgqueue.spark.slices import Slice

HELD_BYTES = 128 * 2**20
"""Memory that a task fills before it writes: the rows of one write are a row group."""
FILE_BYTES = 256 * 2**20
OPEN_FILES = 64
GROWING = ("id", "message_id", "dequeue_at", "transaction_id", "created_at", "started_at", "finished_at")
REPEATED = ("status", "queue", "channel", "task", "worker", "error_class", "error_message", "traceback")


class FileGroup(NamedTuple):
    """A day and a queue, whose rows have files of their own."""

    day: int
    queue: str

    @property
    def date(self) -> str:
        return (dt.date(1970, 1, 1) + dt.timedelta(days=self.day)).isoformat()

    @property
    def folder(self) -> str:
        digest = hashlib.md5(self.queue.encode(), usedforsecurity=False).hexdigest()
        return f"date={self.date}/label={self.queue if re.match(PLAIN_NAME, self.queue) else '~' + digest}"


class Written(NamedTuple):
    """A file as it was read back."""

    group: FileGroup
    name: str
    rows: int
    ids: int
    bytes: int


def fill(lake: Lake, reader: PgQueueReader, run: str) -> list[StagedFiles]:
    """Writes the rows of a reader into the staging folder of a run, as ``data_files.stage`` does."""
    folder = f"{STAGING}/{run}/attempts"
    task = Task(reader=reader, folder=str(Path(lake.files.root) / folder))
    parts = reader.partitions()
    try:
        # Only the files that tasks return count: those of a killed task, or of one that ran twice, are cleared later.
        written = lake.spark.sparkContext.parallelize(parts, max(1, len(parts))).flatMap(task).collect()
    except Exception as error:
        if NOT_STARTED not in str(error) and (words := reason(error)) is not None:
            raise SparkQueueError(words) from error
        raise
    return [staged(lake, folder, run, number, file) for number, file in enumerate(written)]


def staged(lake: Lake, folder: str, run: str, number: int, file: Written) -> StagedFiles:
    """Returns a file that an executor has written, as the driver sees it: executors may have disks of their own."""
    path = f"{folder}/{file.group.folder}/{file.name}"
    if (rows := rows_in(Path(lake.files.root) / path)) != file.rows:
        raise NotShared(not_shared(lake, f"{file.rows:,} rows into {path}", rows))
    return named(path, (file.rows, file.ids, file.group.queue), file.bytes, "attempts", run, number)


@dataclass(kw_only=True)
class Task:
    """Task that an executor calls with a part of the history."""

    reader: PgQueueReader
    folder: str

    def __call__(self, part: Slice) -> list[Written]:
        files = OpenFiles(folder=Path(self.folder))
        for batch in self.reader.read(part):
            for group, rows in grouped(batch):
                files.add(group, rows)
        return files.close()


def grouped(batch: pa.RecordBatch) -> Iterator[tuple[FileGroup, pa.RecordBatch]]:
    """Yields the rows of each day and queue, in their original order."""
    import pyarrow as pa  # noqa: PLC0415 -- executors have it; the driver can do without
    import pyarrow.compute as pc  # noqa: PLC0415

    days = pc.floor_temporal(batch.column("finished_at"), unit="day").cast(pa.date32()).cast(pa.int32())
    keys = pa.RecordBatch.from_arrays([days, batch.column("queue")], ["day", "queue"])
    found = pa.Table.from_batches([keys]).group_by(["day", "queue"]).aggregate([([], "count_all")])
    groups = sorted((row["day"], row["queue"], row["count_all"]) for row in found.to_pylist())
    if len(groups) > 1:
        order = [("day", "ascending"), ("queue", "ascending")]
        batch = batch.take(pc.sort_indices(keys, sort_keys=order))
    start = 0
    for day, queue, rows in groups:
        yield FileGroup(day, queue), batch.slice(start, rows)
        start += rows


@dataclass(kw_only=True)
class OpenFiles:
    """The files of a task: they are large, few are open, and memory holds only a part of them."""

    folder: Path
    held: dict[FileGroup, list[pa.RecordBatch]] = field(default_factory=lambda: defaultdict(list))
    held_bytes: int = 0
    writers: dict[FileGroup, tuple[str, Any]] = field(default_factory=dict)
    written: list[Written] = field(default_factory=list)

    def add(self, group: FileGroup, rows: pa.RecordBatch) -> None:
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
        import pyarrow as pa  # noqa: PLC0415

        rows = pa.Table.from_batches(self.held.pop(group)).combine_chunks()
        name, writer = self.writers.pop(group) if group in self.writers else self._open(group, rows.schema)
        self.writers[group] = name, writer  # goes to the end: the first one is the least recently used
        writer.write_table(rows, row_group_size=rows.num_rows)
        if (self.folder / group.folder / name).stat().st_size > FILE_BYTES:
            self._close(group)
        while len(self.writers) > OPEN_FILES:
            self._close(next(iter(self.writers)))

    def _open(self, group: FileGroup, schema: pa.Schema) -> tuple[str, Any]:
        import pyarrow.parquet as pq  # noqa: PLC0415

        name = f"{uuid.uuid4().hex}.parquet"
        (self.folder / group.folder).mkdir(parents=True, exist_ok=True)
        writer = pq.ParquetWriter(
            self.folder / group.folder / name,
            schema,
            compression="zstd",
            use_dictionary=list(REPEATED),
            column_encoding=dict.fromkeys(GROWING, "DELTA_BINARY_PACKED"),
        )
        return name, writer

    def _close(self, group: FileGroup) -> None:
        name, writer = self.writers.pop(group)
        writer.close()
        path = self.folder / group.folder / name
        rows, ids, _ = read_back(path)
        self.written.append(Written(group, name, rows, ids, path.stat().st_size))
