"""Rows become data files: first in the staging folder, then, counted, under names that the next manifest can name."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, NamedTuple
from urllib.parse import unquote, urlsplit

from pyspark.sql import functions as F  # noqa: N812 -- its usual name

from django_pgqueue.spark.lake.errors import LakeError
from django_pgqueue.spark.lake.lake import STAGING
from django_pgqueue.spark.lake.manifest import DataFile
from django_pgqueue.spark.lake.schema import SCHEMAS

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

    from django_pgqueue.spark.lake.lake import Lake

DAY_US = 86_400_000_000
DAYS = {"attempts": "finished_at"}
"""The time by which a table is partitioned; that of the reports is the hour."""
PLAIN_NAME = r"^[A-Za-z0-9_.-]{1,80}$"
STAGED = re.compile(r".*/date=([^/]+)/label=([^/]+)/[^/]+\.parquet$")
CONCURRENT_FILES = "spark.sql.maxConcurrentOutputFileWriters"


class Staged(NamedTuple):
    path: str
    file: DataFile
    ids: int
    """The sum of the ids, for tables that have some: a second opinion on which rows these are."""


def stage(lake: Lake, rows: DataFrame, table: str, run: str) -> list[Staged]:
    """Writes rows into the staging folder of a run, reads back what is there, and counts it."""
    folder = f"{STAGING}/{run}/{table}"
    shaped = rows.select(*(F.col(field.name).cast(field.dataType) for field in SCHEMAS[table].fields))
    parts = shaped.withColumn("date", day(F.col(DAYS.get(table, "hour")))).withColumn("label", label(F.col("queue")))
    # Otherwise every task sorts its rows by day and queue first.
    rows.sparkSession.conf.set(CONCURRENT_FILES, 32)
    parts.write.partitionBy("date", "label").mode("overwrite").parquet(lake.files.url(folder))
    return counted(lake, folder, table, run)


def day(moment: Column) -> Column:
    """The day in UTC, whatever the session's time zone is."""
    return F.date_from_unix_date(F.floor(F.unix_micros(moment) / DAY_US).cast("int"))


def label(queue: Column) -> Column:
    """A folder's name for a queue: names can be longer, and have more letters, than file systems agree to."""
    return F.when(queue.rlike(PLAIN_NAME), queue).otherwise(F.concat(F.lit("~"), F.md5(queue)))


def counted(lake: Lake, folder: str, table: str, run: str) -> list[Staged]:
    found = {entry.path: entry.bytes for entry in lake.files.walk(folder) if entry.path.endswith(".parquet")}
    if not found:
        return []
    urls = [lake.files.url(path) for path in found]
    counts = (
        lake.spark.read.schema(SCHEMAS[table])
        .parquet(*urls)
        .groupBy(F.col("_metadata.file_path").alias("url"))
        .agg(F.count(F.lit(1)).alias("rows"), F.min("queue").alias("queue"), sum_of_ids(table).alias("ids"))
        .collect()
    )
    by_end = {ending(path): path for path in found}
    staged: list[Staged] = []
    for row in counts:
        path = by_end[ending(unquote(urlsplit(row["url"]).path))]
        match = STAGED.match(path)
        if match is None:
            message = f"{path} is not where the rows of a day and of a queue are."
            raise LakeError(message)
        date, name = match.groups()
        target = f"{table}/date={date}/queue={name}/{run}-{len(staged):05d}.parquet"
        file = DataFile(path=target, date=date, queue=row["queue"], rows=row["rows"], bytes=found[path])
        staged.append(Staged(path, file, int(row["ids"])))
    return staged


def sum_of_ids(table: str) -> Column:
    return F.sum(F.col("id").cast("decimal(20)")) if "id" in SCHEMAS[table].names else F.lit(0)


def ending(path: str) -> str:
    """What tells the files of one staging folder apart: the day, the queue and the file's own name."""
    return "/".join(path.split("/")[-3:])


def publish(lake: Lake, staged: list[Staged]) -> list[DataFile]:
    """Moves staged files to where a manifest can name them.  Until one does, nobody reads them."""
    for path, file, _ in staged:
        lake.files.move(path, file.path)
    return [file for _, file, _ in staged]


def clear(lake: Lake, run: str) -> None:
    """What a run that is over has left in its staging folder."""
    lake.files.delete(f"{STAGING}/{run}")
