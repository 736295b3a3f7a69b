"""Writes rows to data files: first in the staging folder, then, once counted, where the next manifest can name them."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, NamedTuple
from urllib.parse import unquote, urlsplit

from pyspark.sql import Observation, functions as F  # noqa: N812 -- its usual name

from django_pgqueue.spark.lake.errors import LakeError, NotShared
from django_pgqueue.spark.lake.files import LocalFiles
from django_pgqueue.spark.lake.lake import STAGING
from django_pgqueue.spark.lake.manifest import DataFile
from django_pgqueue.spark.lake.schema import SCHEMAS

if TYPE_CHECKING:
    from pathlib import Path

    import pyarrow as pa
    from pyspark.sql import Column, DataFrame

    from django_pgqueue.spark.lake.lake import Lake

DAY_US = 86_400_000_000
DAYS = {"attempts": "finished_at"}
"""The time column that partitions a table; in reports it is the hour."""
PLAIN_NAME = r"^[A-Za-z0-9_.-]{1,80}$"
STAGED = re.compile(r".*/date=([^/]+)/label=([^/]+)/[^/]+\.parquet$")
CONCURRENT_FILES = "spark.sql.maxConcurrentOutputFileWriters"
MICROSECONDS = ("spark.sql.parquet.outputTimestampType", "TIMESTAMP_MICROS")
"""Times in UTC, as Arrow writes them too.  Other readers take Spark's own type for a time without a zone."""


class StagedFiles(NamedTuple):
    path: str
    file: DataFile
    ids: int
    """The sum of the ids, for tables that have ids: a second check on which rows these are."""


def stage(lake: Lake, rows: DataFrame, table: str, run: str) -> list[StagedFiles]:
    """Writes rows into the staging folder of a run, reads the files back, and counts their rows."""
    folder = f"{STAGING}/{run}/{table}"
    shaped = rows.select(
        *(F.col(field.name).cast(field.dataType) for field in SCHEMAS[table].fields if field.name in rows.columns)
    )
    parts = shaped.withColumn("date", day(F.col(DAYS.get(table, "hour")))).withColumn("label", label(F.col("queue")))
    # Otherwise every task sorts its rows by day and queue first.
    rows.sparkSession.conf.set(CONCURRENT_FILES, 32)
    rows.sparkSession.conf.set(*MICROSECONDS)
    written = Observation()
    observed = parts.observe(written, F.count(F.lit(1)).alias("rows"))
    observed.write.partitionBy("date", "label").mode("overwrite").parquet(lake.files.url(folder))
    staged = counted(lake, folder, table, run)
    if (seen := sum(file.rows for _, file, _ in staged)) != written.get["rows"]:
        raise NotShared(not_shared(lake, f"{written.get['rows']:,} rows of {table}", seen))
    return staged


def not_shared(lake: Lake, written: str, seen: int | None) -> str:
    return (
        f"Executors have written {written}, and in {lake.root} this machine sees {seen or 'none'} of them: the "
        "executors do not share the driver's disk. Nothing was made visible. Use a folder that all machines have under "
        "the same name, or the URL of a shared file system (hdfs://, s3a://), or run on this machine: "
        "--master 'local[*]'."
    )


def day(moment: Column) -> Column:
    """Returns the day in UTC, whatever the session's time zone is."""
    return F.date_from_unix_date(F.floor(F.unix_micros(moment) / DAY_US).cast("int"))


def label(queue: Column) -> Column:
    """Returns a folder name for a queue: its own may be too long, or have characters that file systems refuse."""
    return F.when(queue.rlike(PLAIN_NAME), queue).otherwise(F.concat(F.lit("~"), F.md5(queue)))


def counted(lake: Lake, folder: str, table: str, run: str) -> list[StagedFiles]:
    found = {entry.path: entry.bytes for entry in lake.files.walk(folder) if entry.path.endswith(".parquet")}
    if not found:
        return []
    if isinstance(lake.files, LocalFiles):
        known = {path: read_back(lake.files.folder / path, table) for path in found}
        return [named(path, known[path], found[path], table, run, number) for number, path in enumerate(sorted(found))]
    urls = [lake.files.url(path) for path in found]
    counts = (
        lake.spark.read.schema(SCHEMAS[table])
        .parquet(*urls)
        .groupBy(F.col("_metadata.file_path").alias("url"))
        .agg(F.count(F.lit(1)).alias("rows"), F.min("queue").alias("queue"), sum_of_ids(table).alias("ids"))
        .collect()
    )
    by_end = {ending(path): path for path in found}
    staged: list[StagedFiles] = []
    for number, row in enumerate(counts):
        path = by_end[ending(unquote(urlsplit(row["url"]).path))]
        staged.append(named(path, (row["rows"], int(row["ids"]), row["queue"]), found[path], table, run, number))
    return staged


def named(path: str, counts: tuple[int, int, str], size: int, table: str, run: str, number: int) -> StagedFiles:  # noqa: PLR0917
    """Returns a file of the staging folder, with its later name."""
    match = STAGED.match(path)
    if match is None:
        message = f"{path} is not a folder for the rows of a day and of a queue."
        raise LakeError(message)
    date, name = match.groups()
    target = f"{table}/date={date}/queue={name}/{run}-{number:05d}.parquet"
    rows, ids, queue = counts
    return StagedFiles(path, DataFile(path=target, date=date, queue=queue, rows=rows, bytes=size), ids)


def rows_in(path: Path) -> int | None:
    """Returns the number of rows that a file's footer has; None when there is no such file here."""
    import pyarrow.parquet as pq  # noqa: PLC0415

    try:
        return int(pq.read_metadata(path).num_rows)
    except FileNotFoundError:
        return None


def read_back(path: Path, table: str = "attempts") -> tuple[int, int, str]:
    """Returns the number of a file's rows, the sum of their ids and the first queue: without Spark, in any process."""
    import pyarrow.parquet as pq  # noqa: PLC0415 -- a lake on Hadoop does not need it

    rows, ids, queue = 0, 0, None
    with pq.ParquetFile(path) as file:
        for batch in file.iter_batches(columns=["id", "queue"] if "id" in SCHEMAS[table].names else ["queue"]):
            rows += batch.num_rows
            queue = batch.column("queue")[0].as_py() if queue is None else queue
            if "id" in batch.schema.names:
                ids += total(batch.column("id"))
    return rows, ids, str(queue)


def total(column: pa.Array) -> int:
    """Sum of a column: Arrow's own has only 64 bits."""
    import pyarrow.compute as pc  # noqa: PLC0415

    largest = pc.max(pc.abs(column)).as_py() or 0
    return int(pc.sum(column).as_py()) if largest < 2**62 // len(column) else sum(column.to_pylist())


def sum_of_ids(table: str) -> Column:
    return F.sum(F.col("id").cast("decimal(20)")) if "id" in SCHEMAS[table].names else F.lit(0)


def ending(path: str) -> str:
    """Returns the part of a path that is unique in a staging folder: the day, the queue and the file's own name."""
    return "/".join(path.split("/")[-3:])


def publish(lake: Lake, staged: list[StagedFiles]) -> list[DataFile]:
    """Moves staged files to where a manifest can name them.  Until one does, no reader sees them."""
    for path, file, _ in staged:
        lake.files.move(path, file.path)
    return [file for _, file, _ in staged]


def clear(lake: Lake, run: str) -> None:
    """Deletes the staging folder of a run that is over."""
    lake.files.delete(f"{STAGING}/{run}")
