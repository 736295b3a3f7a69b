"""Figures of each hour: messages enqueued, attempts ended, and their errors; and hours added up to days."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark.sql import functions as F  # noqa: N812

from django_pgqueue.spark.lake.schema import REPORT_HOUR
from django_pgqueue.spark.report.histograms import EMPTY, bucket, histogram
from django_pgqueue.spark.report.moments import hour_of, ms, run_ms, wait_ms, within

if TYPE_CHECKING:
    import datetime as dt
    from collections.abc import Mapping, Sequence

    from pyspark.sql import Column, DataFrame

KEYS = ("hour", "queue", "task", "channel")
STATUSES = ("succeeded", "deferred", "retried", "failed", "cancelled", "lost")
KINDS = ("wait", "run")
HISTOGRAMS = tuple(f"{kind}_histogram" for kind in KINDS)
MAX_EXAMPLE = 200
COUNTS = (*STATUSES, "messages", "message_attempts", "sla_misses", "wait_ms", "run_ms")


def hours(
    attempts: DataFrame,
    *,
    since: dt.datetime,
    until: dt.datetime,
    waiting: DataFrame | None = None,
    targets: Mapping[str, float] | None = None,
) -> DataFrame:
    """Returns rows for each hour from ``since`` until before ``until``, with the columns of ``report_hour``.

    ``attempts`` are all that ended at ``since`` or later, also those after ``until``: a message counts in the hour in
    which it was enqueued, whenever it ended.  ``waiting`` are the messages that have not ended yet.  ``targets`` has
    seconds by queue ("*" for all others) within which an attempt should start.
    """
    ended = _ended(attempts.where(within("finished_at", since, until)), targets or {})
    enqueued = _enqueued(attempts, waiting).where(within("hour", since, until))
    parts = _added_up(ended).unionByName(enqueued, allowMissingColumns=True)
    return parts.groupBy(*KEYS).agg(*map(_total, REPORT_HOUR.names[len(KEYS) :]))


def _added_up(ended: DataFrame) -> DataFrame:
    """Computes counts and both histograms in one pass: each attempt appears twice, once with each of its buckets."""
    kinds = F.array(*(F.struct(F.lit(kind).alias("kind"), F.col(f"{kind}_bucket").alias("bucket")) for kind in KINDS))
    counted = (
        ended.select(*KEYS, *COUNTS, F.explode(kinds).alias("of"))
        .groupBy(*KEYS, "of")
        .agg(F.count(F.lit(1)).alias("times"), *(F.sum(name).alias(name) for name in COUNTS))
    )
    once = F.col("of.kind") == KINDS[0]
    return counted.groupBy(*KEYS).agg(
        *(F.sum(F.when(once, F.col(name))).alias(name) for name in COUNTS),
        *(_histogram(kind).alias(f"{kind}_histogram") for kind in KINDS),
    )


def _histogram(kind: str) -> Column:
    counted = (F.col("of.kind") == kind) & F.col("of.bucket").isNotNull()
    return histogram(F.when(counted, F.struct(F.col("of.bucket").alias("bucket"), "times")))


def _total(name: str) -> Column:
    if name in HISTOGRAMS:
        return F.coalesce(F.first(name, ignorenulls=True), F.expr(EMPTY)).alias(name)
    if name == "sla_misses":
        return F.sum(name).alias(name)  # null: there is no target
    return F.coalesce(F.sum(name), F.lit(0)).alias(name)


def _ended(attempts: DataFrame, targets: Mapping[str, float]) -> DataFrame:
    # Both were put back without an error.
    counted = F.when(F.col("status") == "suspended", "deferred").otherwise(F.col("status"))
    return attempts.select(
        hour_of(ms("finished_at")).alias("hour"),
        *KEYS[1:],
        *(F.when(counted == status, 1).otherwise(0).alias(status) for status in STATUSES),
        F.col("final").cast("long").alias("messages"),
        F.when(F.col("final"), F.col("attempt")).otherwise(0).cast("long").alias("message_attempts"),
        (wait_ms() > target_ms(targets)).cast("long").alias("sla_misses"),
        wait_ms().alias("wait_ms"),
        run_ms().alias("run_ms"),
        bucket(wait_ms()).alias("wait_bucket"),
        bucket(run_ms()).alias("run_bucket"),
    )


def target_ms(targets: Mapping[str, float]) -> Column:
    """Target of a row's queue; null for a queue without one."""
    found: Column = F.lit(targets["*"] * 1000) if "*" in targets else F.lit(None).cast("double")
    for queue, seconds in targets.items():
        if queue != "*":
            found = F.when(F.col("queue") == queue, F.lit(seconds * 1000.0)).otherwise(found)
    return found


def _enqueued(attempts: DataFrame, waiting: DataFrame | None) -> DataFrame:
    """Counts messages by the hour: each has one final row, or is still waiting."""
    messages = attempts.where("final").select("created_at", *KEYS[1:])
    if waiting is not None:
        messages = messages.unionByName(waiting.select("created_at", *KEYS[1:]))
    return messages.groupBy(hour_of(ms("created_at")).alias("hour"), *KEYS[1:]).agg(F.count(F.lit(1)).alias("enqueued"))


def rollup(report: DataFrame, by: Sequence[str]) -> DataFrame:
    """Adds up the rows of ``report_hour`` that have the same values in the columns ``by``: no attempt is read again.

    >>> rollup(report.withColumn("day", F.to_date("hour")), ["day", "queue"])  # doctest: +SKIP
    """
    sums = [name for name in REPORT_HOUR.names if name not in {*KEYS, *HISTOGRAMS}]
    parts = report.groupBy(*by).agg(*(F.sum(name).alias(name) for name in sums))
    for name in HISTOGRAMS:
        counted = report.select(*by, F.explode(name).alias("bucket", "times"))
        added = counted.groupBy(*by, "bucket").agg(F.sum("times").alias("times"))
        merged = added.groupBy(*by).agg(histogram(F.struct("bucket", "times")).alias(name))
        parts = parts.unionByName(merged, allowMissingColumns=True)
    return parts.groupBy(*by).agg(*map(_total, [*sums, *HISTOGRAMS]))


def errors_by_hour(attempts: DataFrame, *, since: dt.datetime, until: dt.datetime) -> DataFrame:
    """Returns one row for each hour, queue, task and class of error, with the columns of ``report_error``."""
    # A lake may be without the texts of errors.
    example = F.max_by("error_message", "id") if "error_message" in attempts.columns else F.lit(None).cast("string")
    return (
        attempts.where(within("finished_at", since, until))
        .where("error_class is not null")
        .groupBy(hour_of(ms("finished_at")).alias("hour"), "queue", "task", "error_class")
        .agg(
            F.count(F.lit(1)).alias("attempts"),
            F.substring(example, 1, MAX_EXAMPLE).alias("example"),
        )
    )
