"""Adds hours up to days and weeks, without reading attempts again."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark.sql import functions as F  # noqa: N812

from django_pgqueue.spark.lake.schema import REPORT_HOUR
from django_pgqueue.spark.report.histograms import EMPTY, histogram
from django_pgqueue.spark.report.hours import KEYS

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pyspark.sql import DataFrame

HISTOGRAMS = ("wait_histogram", "run_histogram")


def rollup(report: DataFrame, by: Sequence[str]) -> DataFrame:
    """Adds up the rows of ``report_hour`` that have the same values in the columns ``by``.

    >>> rollup(report.withColumn("day", F.to_date("hour")), ["day", "queue"])  # doctest: +SKIP
    """
    sums = [name for name in REPORT_HOUR.names if name not in {*KEYS, *HISTOGRAMS}]
    parts = report.groupBy(*by).agg(*(F.sum(name).alias(name) for name in sums))
    for name in HISTOGRAMS:
        counted = report.select(*by, F.explode(name).alias("bucket", "times"))
        added = counted.groupBy(*by, "bucket").agg(F.sum("times").alias("times"))
        merged = added.groupBy(*by).agg(histogram(F.struct("bucket", "times")).alias(name))
        parts = parts.unionByName(merged, allowMissingColumns=True)
    whole = [F.coalesce(F.first(name, ignorenulls=True), F.expr(EMPTY)).alias(name) for name in HISTOGRAMS]
    return parts.groupBy(*by).agg(*(F.sum(name).alias(name) for name in sums), *whole)
