"""How many messages waited, and how many ran at a time, in each hour of each queue: reconstructed from the history."""

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
    """One row for each hour and queue, with the columns of ``report_queue``.

    An attempt waits from when it is due until it starts, and runs until it ends.  ``attempts`` are all that ended at
    ``since`` or later; ``waiting`` are the messages that have not ended.
    """
    frames = [_depths(attempts, waiting, since, until), _running(attempts, since, until)]
    parts = frames[0].unionByName(frames[1], allowMissingColumns=True)
    names = ("depth", "depth_max", "running", "running_max", "slots")
    return parts.groupBy(*KEYS).agg(*(F.coalesce(F.sum(name), F.lit(0)).alias(name) for name in names))


def _depths(attempts: DataFrame, waiting: DataFrame | None, since: dt.datetime, until: dt.datetime) -> DataFrame:
    """By the second: who waits for less is no backlog, and the seconds of a year are few where its jobs are not."""
    begins = attempts.select("queue", due_ms().alias("at"), F.lit(1).alias("change"))
    ends = attempts.select("queue", F.greatest(due_ms(), ms(F.coalesce("started_at", "finished_at"))), F.lit(-1))
    changes = begins.union(ends)
    if waiting is not None:
        changes = changes.union(waiting.where("started_at is null").select("queue", due_ms(), F.lit(1)))
    first, last = int(since.timestamp()), int(until.timestamp())
    seconds = (
        changes.where(F.col("at") < last * 1000.0)
        .groupBy("queue", F.greatest(F.floor(F.col("at") / 1000), F.lit(first)).alias("second"))
        .agg(F.sum("change").alias("change"))
    )
    # A row at the beginning of each hour, so that hours in which nothing changes are there too.
    marks = (
        seconds.select("queue")
        .distinct()
        .select("queue", F.explode(F.sequence(F.lit(first), F.lit(last - 1), F.lit(3600))).alias("second"), F.lit(0))
    )
    so_far = Window.partitionBy("queue").orderBy("second")
    depth = F.sum("change").over(so_far)
    return (
        seconds.union(marks)
        .groupBy("queue", "second")
        .agg(F.sum("change").alias("change"))
        .select("queue", "second", depth.alias("level"))
        .groupBy(hour_of(F.col("second") * 1000).alias("hour"), "queue")
        .agg(F.max_by("level", "second").alias("depth"), F.max("level").alias("depth_max"))
        .where("depth_max > 0")
    )


def _running(attempts: DataFrame, since: dt.datetime, until: dt.datetime) -> DataFrame:
    """Each attempt cut at the hours, so that no hour needs to know about another."""
    first, last = since.timestamp() * 1000, until.timestamp() * 1000
    hour = F.col("hour_number") * HOUR_MS
    start, end = F.greatest(ms("started_at"), F.lit(first)), F.least(ms("finished_at"), F.lit(last - 0.001))
    pieces = (
        attempts.where("started_at is not null")
        .select("queue", F.coalesce("worker", F.lit("")).alias("worker"), start.alias("start"), end.alias("end"))
        .where("end >= start")
        .select("*", F.explode(F.sequence(_hour_number("start"), _hour_number("end"))).alias("hour_number"))
        .select(
            hour_of(hour).alias("hour"),
            "queue",
            "worker",
            F.greatest("start", hour.cast("double")).alias("start"),
            F.least("end", (hour + HOUR_MS).cast("double")).alias("end"),
        )
    )
    busy = pieces.groupBy(*KEYS).agg((F.sum(F.col("end") - F.col("start")) / HOUR_MS).alias("running"))
    most = _most_at_once(pieces, "queue").withColumnRenamed("most", "running_max")
    workers = _most_at_once(pieces, "worker")
    slots = (
        pieces.select(*KEYS, "worker")
        .distinct()
        .join(workers, ["hour", "worker"])
        .groupBy(*KEYS)
        .agg(F.sum("most").alias("slots"))
    )
    return busy.join(most, list(KEYS)).join(slots, list(KEYS))


def _hour_number(column: str) -> Column:
    return F.floor(F.col(column) / HOUR_MS).cast("long")


def _most_at_once(pieces: DataFrame, by: str) -> DataFrame:
    changes = pieces.select("hour", by, F.col("start").alias("at"), F.lit(1).alias("change")).union(
        pieces.select("hour", by, "end", F.lit(-1))
    )
    net = changes.groupBy("hour", by, "at").agg(F.sum("change").alias("change"))
    level = F.sum("change").over(Window.partitionBy("hour", by).orderBy("at"))
    # An attempt that ends in the instant in which it starts was there, too.
    return (
        net.select("hour", by, level.alias("level"))
        .groupBy("hour", by)
        .agg(F.greatest(F.max("level"), F.lit(1)).alias("most"))
    )
