"""The report: computed from the lake, kept in it, and copied to small tables in PostgreSQL."""

from __future__ import annotations

import datetime as dt
import json
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from pyspark.sql import functions as F  # noqa: N812

from django_pgqueue.spark import database
from django_pgqueue.spark.lake import Lake, LakeError
from django_pgqueue.spark.lake.kept_columns import NEEDED, KeptColumns
from django_pgqueue.spark.lake.lake import REPORTED, readable
from django_pgqueue.spark.lake.lineage import mark_of_rows
from django_pgqueue.spark.lake.reading import read_files
from django_pgqueue.spark.lake.schema import SCHEMAS
from django_pgqueue.spark.options import PipelineOptions
from django_pgqueue.spark.pipeline.export import check
from django_pgqueue.spark.pipeline.source_database import origin_of
from django_pgqueue.spark.progress import Progress
from django_pgqueue.spark.report import Quality, errors_by_hour, hours, quality, queues_by_hour
from django_pgqueue.spark.schema import arrow
from django_pgqueue.spark.source import registered

if TYPE_CHECKING:
    import os
    from collections.abc import Mapping, Sequence

    import pyarrow as pa
    from pyspark.sql import DataFrame, SparkSession

    from django_pgqueue.spark.lake import Version

TABLES = ("report_hour", "report_queue", "report_error")
WAITING = ("queue", "task", "channel", "created_at", "dequeue_at", "locked_at")
DAYS_AGAIN = 1
"""A report without ``since`` begins this many days before the end of the last one, whose last day was not over."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Reported:
    since: dt.date
    until: dt.date
    rows: Mapping[str, int]
    quality: Quality


def report(
    spark: SparkSession,
    path: str | os.PathLike[str],
    *,
    since: dt.date | None = None,
    until: dt.date | None = None,
    targets: Mapping[str, float] | None = None,
    options: Mapping[str, str] | None = None,
    progress: Progress | None = None,
) -> Reported:
    """Reports on the days (UTC) from ``since`` to ``until``, both inclusive: in the lake and in PostgreSQL.

    Without ``since`` it begins where the last report ended; without ``until`` it ends at the last day of the lake.  It
    replaces hours that were reported before, and ends today at the latest.  ``targets`` has seconds by queue ("*": all
    others), within which an attempt should start after it was due.
    """
    progress, options = progress or Progress(), options or {}
    check(options)
    lake = Lake.open(spark, path)
    with origin_of(lake, options) as origin:
        before = lake.version()
        kept = KeptColumns.decided(before, PipelineOptions.of(options))
        short = [name for name in kept.names if name in {*NEEDED, "error_message"}]
        today = origin.today()
        since, until = period(lake, before, since, until, today)
        begin, end = midnight(since), midnight(until + dt.timedelta(days=1))
        progress.step(f"reporting {since} to {until}")
        attempts = read_files(lake, "attempts", before.files(since=since), short)
        waiting = waiting_messages(
            spark, options, kept.masked
        ).persist()  # read once: all tables are about the same moment
        limits = {"since": begin, "until": end}
        frames = {
            "report_hour": hours(attempts, waiting=waiting, targets=targets, **limits),
            "report_queue": queues_by_hour(attempts, waiting=waiting, **limits),
            "report_error": errors_by_hour(attempts, **limits),
        }
        rows = {name: rows_of(frame, name) for name, frame in frames.items()}
        waiting.unpersist()
        progress.step("writing to PostgreSQL")
        # First: the lake records how far the report has come, and the next one begins there.
        copy(rows, begin, end, midnight(today + dt.timedelta(days=1)), options)
        keep(lake, rows, since, until, today)
        progress.step("looking at the quality of the data")
        unread, seconds = origin.unread(before.position)
        seen = quality(attempts, **limits)
        return Reported(
            since=since,
            until=until,
            rows={name: rows[name].num_rows for name in TABLES},
            quality=replace(seen, missed=before.missed, unread=unread, unread_seconds=seconds),
        )


def period(
    lake: Lake, version: Version, since: dt.date | None, until: dt.date | None, today: dt.date
) -> tuple[dt.date, dt.date]:
    """Returns the days of a report.  Nothing is known of days to come."""
    days = sorted({file.date for file in version.files()})
    if not days:
        message = "The lake has no attempts to report on. Export some first."
        raise LakeError(message)
    reported = reported_until(lake, today)
    until = min(until or days[-1], today)  # a day to come, that a wrong clock has made, would be the end for good
    if since is None:
        since = days[0] if reported is None else min(reported, until) - dt.timedelta(days=DAYS_AGAIN)
    if since > until:
        message = f"The report would end ({until}) before it begins ({since})."
        raise LakeError(message)
    return since, until


def midnight(day: dt.date) -> dt.datetime:
    return dt.datetime.combine(day, dt.time(), dt.UTC)


def waiting_messages(spark: SparkSession, options: Mapping[str, str], masked: Sequence[str]) -> DataFrame:
    """Returns the messages that have not ended, with the column names of attempts, and with the masks of the lake."""
    mask = ",".join(name for name in masked if name in WAITING)
    read = {**options, "table": "messages", "columns": ",".join(WAITING), "mask": mask}
    messages = registered(spark).read.format("pgqueue").options(**read).load()
    return messages.withColumnRenamed("locked_at", "started_at")


def reported_until(lake: Lake, today: dt.date) -> dt.date | None:
    """Returns how far all tables have come.  Another program may have restored one to an earlier version.  None: all
    days are to be reported, as after a report of days to come, which wrote none of those since then.
    """
    found = []
    for name in TABLES:
        table = lake.table(name)
        if table is not None and table.transaction_version(REPORTED) is not None:
            with readable(lake.place / name):
                found.append(mark_of_rows(lake.place / name, table, REPORTED))
        elif name == "report_hour":  # the others of a lake of an earlier release have no mark
            return None
    known = [day for day in found if day is not None]
    return dt.date.fromordinal(min(known)) if known == found and max(known) <= today.toordinal() else None


def keep(lake: Lake, rows: Mapping[str, pa.Table], since: dt.date, until: dt.date, today: dt.date) -> None:
    """Replaces the reported days in the lake, one table after the other.  Days to come go."""
    last = max(until, reported_until(lake, today) or until).toordinal()
    for name in reversed(TABLES):  # the hours come last: they record how far the report has come
        lake.replace(name, since, until, rows[name], {REPORTED: last}, today)


def rows_of(frame: DataFrame, name: str) -> pa.Table:
    schema = SCHEMAS[name]
    return frame.select(*(F.col(field.name).cast(field.dataType) for field in schema)).toArrow().cast(arrow(schema))


def copy(
    rows: Mapping[str, pa.Table],
    since: dt.datetime,
    until: dt.datetime,
    tomorrow: dt.datetime,
    options: Mapping[str, str],
) -> None:
    """Replaces the reported hours in PostgreSQL, in one transaction.  Days to come go."""
    with database.connect(database.writing(PipelineOptions.of(options))) as connection, connection.transaction():
        # One report at a time; readers of the tables see the previous one meanwhile.
        connection.execute("lock table pgqueue_report_hour in share row exclusive mode")
        cursor = connection.cursor()
        for name, table in rows.items():
            # The names are those of this package.
            replaced = f"delete from pgqueue_{name} where hour >= %s and hour < %s or hour >= %s"  # noqa: S608
            cursor.execute(replaced.encode(), (since, until, tomorrow))
            with cursor.copy(f"copy pgqueue_{name} ({', '.join(table.column_names)}) from stdin".encode()) as copied:
                for batch in table.to_batches(max_chunksize=10_000):
                    for row in zip(*(column.to_pylist() for column in batch.columns), strict=True):
                        # A histogram is a list of pairs.
                        copied.write_row([json.dumps(dict(v)) if isinstance(v, list) else v for v in row])
