"""Errors of each hour."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark.sql import functions as F  # noqa: N812

from django_pgqueue.spark.report.moments import hour_of, ms, within

if TYPE_CHECKING:
    import datetime as dt

    from pyspark.sql import DataFrame

KEYS = ("hour", "queue", "task", "error_class")
MAX_EXAMPLE = 200


def errors_by_hour(attempts: DataFrame, *, since: dt.datetime, until: dt.datetime) -> DataFrame:
    """Returns one row for each hour, queue, task and class of error, with the columns of ``report_error``."""
    # A lake may be without the texts of errors.
    example = F.max_by("error_message", "id") if "error_message" in attempts.columns else F.lit(None).cast("string")
    return (
        attempts.where(within("finished_at", since, until))
        .where("error_class is not null")
        .groupBy(hour_of(ms("finished_at")).alias("hour"), *KEYS[1:])
        .agg(
            F.count(F.lit(1)).alias("attempts"),
            F.substring(example, 1, MAX_EXAMPLE).alias("example"),
        )
    )
