"""The quality of the reported attempts: what is there twice, what is not there, and times that cannot be."""

from __future__ import annotations

import datetime as dt
from dataclasses import dataclass
from typing import TYPE_CHECKING

from pyspark.sql import functions as F  # noqa: N812

from django_pgqueue.spark.report.moments import ms, within

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pyspark.sql import DataFrame

EPOCH = dt.date(1970, 1, 1)
DAY_MS = 86_400_000
SHOWN = 5


@dataclass(frozen=True, slots=True, kw_only=True)
class Quality:
    attempts: int
    duplicates: int
    """Rows whose id another row has too."""
    disordered: int
    """Attempts that began before their message was created, or ended before they began: clocks were moved."""
    empty_days: tuple[dt.date, ...]
    """Days without an attempt, between days that have some."""
    missed: int = 0
    """Attempts that retention dropped before this lake had them, in all."""
    unread: int = 0
    """Attempts that ended since the last export."""
    unread_seconds: float = 0.0
    """How long ago the first of these ended."""

    def lines(self) -> list[str]:
        """Returns a line for people for each thing that was looked at."""
        gaps = f"retention dropped {self.missed:,} attempts before they were exported" if self.missed else "no gaps"
        if self.empty_days:
            more = f" and {len(self.empty_days) - SHOWN} more" if len(self.empty_days) > SHOWN else ""
            gaps += f"; no attempts on {', '.join(map(str, self.empty_days[:SHOWN]))}{more}"
        age = dt.timedelta(seconds=int(self.unread_seconds))
        return [
            f"duplicates: {self.duplicates:,} of {self.attempts:,} attempts" if self.duplicates else "no duplicates",
            gaps,
            f"clocks: the times of {self.disordered:,} attempts are in disorder"
            if self.disordered
            else "clocks: all times are in order",
            f"lag: {self.unread:,} attempts are not exported yet, the first ended {age} ago"
            if self.unread
            else "lag: everything is exported",
        ]


def quality(attempts: DataFrame, *, since: dt.datetime, until: dt.datetime) -> Quality:
    """Looks at the attempts that ended from ``since`` until before ``until``."""
    chosen = attempts.where(within("finished_at", since, until))
    disordered = (F.col("started_at") < F.col("created_at")) | (
        F.col("finished_at") < F.coalesce("started_at", "created_at")
    )
    found = (
        chosen.groupBy("id")
        .agg(
            F.count(F.lit(1)).alias("rows"),
            F.count(F.when(disordered, 1)).alias("disordered"),
            F.min(F.floor(ms("finished_at") / DAY_MS)).alias("day"),
        )
        .agg(
            F.coalesce(F.sum("rows"), F.lit(0)).alias("attempts"),
            F.coalesce(F.sum(F.col("rows") - 1), F.lit(0)).alias("duplicates"),
            F.coalesce(F.sum("disordered"), F.lit(0)).alias("disordered"),
            F.collect_set("day").alias("days"),
        )
        .collect()[0]
    )
    return Quality(
        attempts=found["attempts"],
        duplicates=found["duplicates"],
        disordered=found["disordered"],
        empty_days=empty([int(day) for day in found["days"]]),
    )


def empty(days: Sequence[int]) -> tuple[dt.date, ...]:
    if not days:
        return ()
    absent = sorted({*range(min(days), max(days))} - {*days})
    return tuple(EPOCH + dt.timedelta(days=day) for day in absent)
