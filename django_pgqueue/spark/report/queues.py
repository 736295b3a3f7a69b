"""Numbers of messages waiting and running at a time, by hour and queue: reconstructed from the history."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark.sql import Window, functions as F  # noqa: N812

from django_pgqueue.spark.report.moments import HOUR_MS, due_ms, hour_of, ms

if TYPE_CHECKING:
    import datetime as dt

    from pyspark.sql import Column, DataFrame

KEYS = ("hour", "queue")


def queues_by_hour(
    attempts: DataFrame, *, since: dt.datetime, until: dt.datetime, waiting: DataFrame | None = None
) -> DataFrame:
    """Returns one row for each hour and queue, with the columns of ``report_queue``.

    An attempt waits from when it is due until it starts, and runs until it ends.  ``attempts`` are all that ended at
    ``since`` or later; ``waiting`` are the messages that have not ended.
    """
    frames = [_depths(attempts, waiting, since, until), _running(attempts, since, until)]
    parts = frames[0].unionByName(frames[1], allowMissingColumns=True)
    names = ("depth", "depth_max", "running", "running_max", "slots")
    return parts.groupBy(*KEYS).agg(*(F.coalesce(F.sum(name), F.lit(0)).alias(name) for name in names))


def _depths(attempts: DataFrame, waiting: DataFrame | None, since: dt.datetime, until: dt.datetime) -> DataFrame:
    """Counts by the second: a shorter wait is no backlog, and a year has fewer seconds than jobs."""
    end = F.greatest(due_ms(), ms(F.coalesce("started_at", "finished_at")))
    changes = attempts.select("queue", F.explode(_change(due_ms(), 1, end, -1)).alias("c")).select("queue", "c.*")
    if waiting is not None:
        begun = waiting.where("started_at is null").select("queue", due_ms().alias("at"), F.lit(1).alias("change"))
        changes = changes.union(begun)
    first, last = int(since.timestamp()), int(until.timestamp())
    so_far = Window.partitionBy("queue").orderBy("second")
    levels = (
        changes.where(F.col("at") < last * 1000.0)
        .groupBy("queue", F.greatest(F.floor(F.col("at") / 1000), F.lit(first)).cast("long").alias("second"))
        .agg(F.sum("change").alias("change"))
        .select("queue", "second", F.sum("change").over(so_far).alias("level"))
    )
    return _without_gaps(levels, last // 3600)


def _without_gaps(levels: DataFrame, last_hour: int) -> DataFrame:
    """Returns one row for each hour, also for hours without a change."""
    hours = Window.partitionBy("queue").orderBy("number")
    changed = (
        levels.groupBy("queue", F.floor(F.col("second") / 3600).alias("number"))
        .agg(F.max_by("level", "second").alias("depth"), F.max("level").alias("most"))
        .withColumn("before", F.coalesce(F.lag("depth").over(hours), F.lit(0)))
        .withColumn("next", F.coalesce(F.lead("number").over(hours), F.lit(last_hour)))
    )
    return (
        changed.withColumn("each", F.explode(F.sequence("number", F.col("next") - 1)))
        .select(
            F.timestamp_seconds(F.col("each") * 3600).alias("hour"),
            "queue",
            "depth",
            F.when(F.col("each") == F.col("number"), F.greatest("most", "before"))
            .otherwise(F.col("depth"))
            .alias("depth_max"),
        )
        .where("depth_max > 0")
    )


def _change(at: Column, change: int, other: Column, other_change: int) -> Column:
    return F.array(
        F.struct(at.cast("double").alias("at"), F.lit(change).alias("change")),
        F.struct(other.cast("double").alias("at"), F.lit(other_change).alias("change")),
    )


def _running(attempts: DataFrame, since: dt.datetime, until: dt.datetime) -> DataFrame:
    """Cuts each attempt at the hours, so that each hour is computed without the others."""
    first, last = since.timestamp() * 1000, until.timestamp() * 1000
    hour = F.col("hour_number") * HOUR_MS
    start, end = F.greatest(ms("started_at"), F.lit(first)), F.least(ms("finished_at"), F.lit(last - 0.001))
    pieces = (
        attempts.where("started_at is not null")
        .select("queue", F.coalesce("worker", F.lit("")).alias("worker"), start.alias("start"), end.alias("end"))
        .where(F.col("end") >= F.col("start"))  # "end" is a reserved word where Spark keeps to ANSI
        .select("*", F.explode(F.sequence(_hour_number("start"), _hour_number("end"))).alias("hour_number"))
        .select(
            hour_of(hour).alias("hour"),
            "queue",
            "worker",
            F.greatest("start", hour.cast("double")).alias("start"),
            F.least("end", (hour + HOUR_MS).cast("double")).alias("end"),
        )
    )
    changes = pieces.select(
        *KEYS,
        "worker",
        (F.col("end") - F.col("start")).alias("busy_ms"),
        F.explode(_change(F.col("start"), 1, F.col("end"), -1)).alias("c"),
    ).select(*KEYS, "worker", F.when(F.col("c.change") == 1, F.col("busy_ms")).alias("busy_ms"), "c.*")
    seen = changes.select("*", _at_once("queue").alias("of_queue"), _at_once("worker").alias("of_worker"))
    workers = seen.groupBy(*KEYS, "worker").agg(
        F.sum("busy_ms").alias("busy_ms"), F.max("of_queue").alias("of_queue"), F.max("of_worker").alias("of_worker")
    )
    # A worker may have been busiest with another queue.
    busiest = F.max("of_worker").over(Window.partitionBy("hour", "worker"))
    return (
        workers.withColumn("slots", F.greatest(busiest, F.lit(1)))
        .groupBy(*KEYS)
        .agg(
            (F.sum("busy_ms") / HOUR_MS).alias("running"),
            # An attempt that ends in the instant in which it starts counts, too.
            F.greatest(F.max("of_queue"), F.lit(1)).alias("running_max"),
            F.sum("slots").alias("slots"),
        )
    )


def _hour_number(column: str) -> Column:
    return F.floor(F.col(column) / HOUR_MS).cast("long")


def _at_once(by: str) -> Column:
    """Returns how many run after each change: ends come before starts of the same instant."""
    so_far = Window.partitionBy("hour", by).orderBy("at", "change").rowsBetween(Window.unboundedPreceding, 0)
    return F.sum("change").over(so_far)
