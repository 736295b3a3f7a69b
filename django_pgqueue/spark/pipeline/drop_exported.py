"""Drops days in PostgreSQL that the lake has, when both have the same rows."""

from __future__ import annotations

import datetime as dt
from dataclasses import dataclass
from typing import TYPE_CHECKING

import psycopg
from pyspark.sql import functions as F  # noqa: N812

from django_pgqueue.spark import database
from django_pgqueue.spark.lake import Lake
from django_pgqueue.spark.lake.kept_columns import KeptColumns
from django_pgqueue.spark.lake.reading import read_files
from django_pgqueue.spark.options import PipelineOptions
from django_pgqueue.spark.progress import Progress
from django_pgqueue.spark.schema import ATTEMPTS, TIMESTAMP

if TYPE_CHECKING:
    import os
    from collections.abc import Mapping

    from pyspark.sql import SparkSession


OLD_DAYS = """
    select d.day
    from pg_inherits i join pg_class c on c.oid = i.inhrelid,
        to_date(substring(c.relname from '^pgqueue_attempt_([0-9]{8})$'), 'YYYYMMDD') as d (day)
    where i.inhparent = 'pgqueue_attempt'::regclass and (now() at time zone 'UTC')::date - d.day > %s
    order by 1
"""
UNREAD = """
    select l.location, count(*)
    from pgqueue_lake l join pgqueue_attempt a on a.transaction_id >= l.position
    where l.id <> %s and a.finished_at >= %s and a.finished_at < %s
    group by l.id, l.location order by l.location
"""


SAME = "select pgqueue_attempt_fingerprint(%s) = %s"


@dataclass(frozen=True, slots=True, kw_only=True)
class Dropped:
    days: tuple[dt.date, ...]
    kept: Mapping[dt.date, str]
    """Days that are old enough but were kept, and why."""


def drop_exported(
    spark: SparkSession,
    path: str | os.PathLike[str],
    *,
    keep_days: int,
    options: Mapping[str, str] | None = None,
    progress: Progress | None = None,
) -> Dropped:
    """Drops the partitions of the history that are older than ``keep_days`` whole days, if the lake has all their rows,
    and each other lake that PostgreSQL knows has read them.

    Results of jobs, and failed messages to enqueue again, come from the history: keep the days that people may need.
    """
    progress = progress or Progress()
    lake = Lake.open(spark, path)
    version = lake.version()
    KeptColumns.of(version).require(ATTEMPTS.fieldNames(), "--drop-exported")
    dropped, kept = [], {}
    with database.connect(database.writing(PipelineOptions.of(options or {}))) as connection:
        for (day,) in connection.execute(OLD_DAYS, [keep_days]).fetchall():
            progress.step(f"comparing {day}")
            if (unread := unread_by_others(connection, version.lake_id, day)) is not None:
                kept[day] = unread
                continue
            copied = fingerprint(lake, day)
            try:
                if connection.execute(SAME, (day, copied)).fetchone() == (True,):
                    keep_ends(connection, day)
                done = connection.execute("select pgqueue_attempt_drop(%s, %s)", (day, copied)).fetchone()
            except (psycopg.errors.LockNotAvailable, psycopg.errors.DeadlockDetected):
                kept[day] = "another session held a lock: run the command again"
                continue
            if done and done[0]:
                dropped.append(day)
            else:
                kept[day] = (
                    f"the lake has {copied.partition(':')[0]} rows, and PostgreSQL has different ones: export first"
                )
    return Dropped(days=tuple(dropped), kept=kept)


def keep_ends(connection: psycopg.Connection, day: dt.date) -> None:
    """Copies what the day has for parents, in transactions before that of the drop: a job that waits for the lock of
    the drop may have a snapshot from before it, and finds the ends of its children here or there.
    """
    is_done = False
    while not is_done:
        with connection.transaction():
            connection.execute("set local lock_timeout = '200ms'")
            is_done = connection.execute("select pgqueue_child_keep(%s)", [day]).fetchone() == (0,)


def unread_by_others(connection: psycopg.Connection, lake_id: str, day: dt.date) -> str | None:
    """Returns which other lake has not read all attempts of the day; None: there is none."""
    begin = dt.datetime.combine(day, dt.time(), dt.UTC)
    row = connection.execute(UNREAD, (lake_id, begin, begin + dt.timedelta(days=1))).fetchone()
    if row is None:
        return None
    return f"the lake {row[0]} has not read {row[1]:,} attempts of it: export to that lake first, or forget it"


def fingerprint(lake: Lake, day: dt.date) -> str:
    """Returns what ``pgqueue_attempt_fingerprint`` computes in PostgreSQL."""
    rows = read_files(lake, "attempts", lake.version().files(since=day, until=day))
    times = {field.name for field in ATTEMPTS.fields if field.dataType == TIMESTAMP}
    numbers = [F.unix_micros(name) if name in times else F.col(name) for name in ATTEMPTS.fieldNames()]
    text = F.array_join(F.array(*(number.cast("string") for number in numbers)), "/", "\\N")
    bits = F.conv(F.substring(F.md5(text), 1, 8), 16, 10).cast("decimal(20)")
    found = rows.agg(
        F.count(F.lit(1)).alias("rows"),
        F.coalesce(F.sum(F.col("id").cast("decimal(20)")), F.lit(0)).alias("ids"),
        F.coalesce(F.sum(bits), F.lit(0)).alias("checksum"),
    ).first()
    return ":".join(str(int(value)) for value in found) if found else "0:0:0"
