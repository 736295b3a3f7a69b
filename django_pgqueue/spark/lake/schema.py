"""The columns of the lake's tables."""

from __future__ import annotations

from pyspark.sql.types import (
    DataType,
    DoubleType,
    IntegerType,
    LongType,
    MapType,
    StringType,
    StructField,
    StructType,
    TimestampType,
)

from django_pgqueue.spark.schema import APPROVALS, ATTEMPTS, STEPS

__all__ = ["ATTEMPTS", "DAY_OF", "HISTOGRAM", "HISTORY", "REPORT_ERROR", "REPORT_HOUR", "REPORT_QUEUE", "SCHEMAS"]

HISTOGRAM = MapType(IntegerType(), LongType())


def table(**columns: tuple[DataType, bool]) -> StructType:
    """Returns a schema from pairs (type, whether the column can be null)."""
    return StructType([StructField(name, kind, null) for name, (kind, null) in columns.items()])


REPORT_HOUR = table(
    hour=(TimestampType(), False),
    queue=(StringType(), False),
    task=(StringType(), True),
    channel=(StringType(), True),
    enqueued=(LongType(), False),
    succeeded=(LongType(), False),
    deferred=(LongType(), False),
    retried=(LongType(), False),
    failed=(LongType(), False),
    cancelled=(LongType(), False),
    lost=(LongType(), False),
    messages=(LongType(), False),
    message_attempts=(LongType(), False),
    sla_misses=(LongType(), True),
    wait_ms=(DoubleType(), False),
    run_ms=(DoubleType(), False),
    wait_histogram=(HISTOGRAM, False),
    run_histogram=(HISTOGRAM, False),
)

REPORT_QUEUE = table(
    hour=(TimestampType(), False),
    queue=(StringType(), False),
    depth=(LongType(), False),
    depth_max=(LongType(), False),
    running=(DoubleType(), False),
    running_max=(LongType(), False),
    slots=(LongType(), False),
)

REPORT_ERROR = table(
    hour=(TimestampType(), False),
    queue=(StringType(), False),
    task=(StringType(), True),
    error_class=(StringType(), True),
    attempts=(LongType(), False),
    example=(StringType(), True),
)

DAY_OF = {"attempts": "finished_at", "steps": "finished_at", "approvals": "asked_at"}
"""The tables that exports write, and the time whose day a row belongs to."""
HISTORY = tuple(DAY_OF)
SCHEMAS = {
    "attempts": ATTEMPTS,
    "steps": STEPS,
    "approvals": APPROVALS,
    "report_hour": REPORT_HOUR,
    "report_queue": REPORT_QUEUE,
    "report_error": REPORT_ERROR,
}
