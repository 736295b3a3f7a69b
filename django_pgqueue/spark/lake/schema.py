"""The columns of the lake's tables."""

from __future__ import annotations

from pyspark.sql.types import DoubleType, MapType

from django_pgqueue.spark.schema import APPROVALS, ATTEMPTS, INTEGER, LONG, STEPS, TEXT, TIMESTAMP, struct

DOUBLE, HISTOGRAM = DoubleType(), MapType(INTEGER, LONG)

REPORT_HOUR = struct(
    [
        ("hour", TIMESTAMP, False),
        ("queue", TEXT, False),
        ("task", TEXT, True),
        ("channel", TEXT, True),
        ("enqueued", LONG, False),
        ("succeeded", LONG, False),
        ("deferred", LONG, False),
        ("retried", LONG, False),
        ("failed", LONG, False),
        ("cancelled", LONG, False),
        ("lost", LONG, False),
        ("messages", LONG, False),
        ("message_attempts", LONG, False),
        ("sla_misses", LONG, True),
        ("wait_ms", DOUBLE, False),
        ("run_ms", DOUBLE, False),
        ("wait_histogram", HISTOGRAM, False),
        ("run_histogram", HISTOGRAM, False),
    ]
)

REPORT_QUEUE = struct(
    [
        ("hour", TIMESTAMP, False),
        ("queue", TEXT, False),
        ("depth", LONG, False),
        ("depth_max", LONG, False),
        ("running", DOUBLE, False),
        ("running_max", LONG, False),
        ("slots", LONG, False),
    ]
)

REPORT_ERROR = struct(
    [
        ("hour", TIMESTAMP, False),
        ("queue", TEXT, False),
        ("task", TEXT, True),
        ("error_class", TEXT, True),
        ("attempts", LONG, False),
        ("example", TEXT, True),
    ]
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
