"""Times of attempts, in milliseconds and hours that do not depend on the session's time zone."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark.sql import functions as F  # noqa: N812

if TYPE_CHECKING:
    import datetime as dt

    from pyspark.sql import Column

HOUR_MS = 3_600_000


def ms(moment: str | Column) -> Column:
    return F.unix_micros(F.col(moment) if isinstance(moment, str) else moment) / 1000


def due_ms() -> Column:
    """Returns the earliest time when an attempt could start: not before its message was created."""
    return F.greatest(ms("created_at"), F.col("dequeue_at").cast("double"))


def wait_ms() -> Column:
    return F.when(F.col("started_at").isNotNull(), F.greatest(ms("started_at") - due_ms(), F.lit(0.0)))


def run_ms() -> Column:
    """Returns the run time; null for a lost attempt, whose end is only when the loss was noticed."""
    measured = F.col("started_at").isNotNull() & (F.col("status") != "lost")
    return F.when(measured, F.greatest(ms("finished_at") - ms("started_at"), F.lit(0.0)))


def hour_of(moment_ms: Column) -> Column:
    return F.timestamp_seconds(F.floor(moment_ms / HOUR_MS) * 3600)


def within(column: str, since: dt.datetime, until: dt.datetime) -> Column:
    return (F.col(column) >= F.lit(since)) & (F.col(column) < F.lit(until))
