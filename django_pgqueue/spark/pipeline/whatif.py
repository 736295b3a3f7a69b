"""Compares scenarios: a task of its own simulates each of them, from the attempts that the lake has."""

from __future__ import annotations

import math
from bisect import bisect_left
from dataclasses import dataclass
from typing import TYPE_CHECKING

from pyspark.sql import functions as F  # noqa: N812

from django_pgqueue.spark.lake import LakeError, read_lake
from django_pgqueue.spark.progress import Progress
from django_pgqueue.spark.report.moments import due_ms, run_ms
from django_pgqueue.spark.simulation import Scenario, SimulatedArrival, simulate

if TYPE_CHECKING:
    import datetime as dt
    import os
    from collections.abc import Sequence

    from pyspark import Broadcast
    from pyspark.sql import DataFrame, SparkSession


COLUMNS = ("queue", "channel", "status", "priority", "created_at", "dequeue_at", "started_at", "finished_at")
MOST = 2_000_000
"""Maximum of attempts: each task holds all of them in memory, at about 100 bytes each."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Prediction:
    scenario: Scenario
    wait_p50_ms: float
    wait_p95_ms: float
    wait_p99_ms: float
    longest_ms: float
    utilisation: float
    """Utilisation of the slots, between the first arrival and the last end."""


def whatif(
    spark: SparkSession,
    path: str | os.PathLike[str],
    scenarios: Sequence[Scenario],
    *,
    queues: Sequence[str] = (),
    since: dt.date | None = None,
    until: dt.date | None = None,
    progress: Progress | None = None,
) -> list[Prediction]:
    """Returns how long messages would have waited, for each of the scenarios.

    Each recorded attempt arrives when it was due and runs as long as it ran.  Retries keep their recorded times.

    >>> whatif(spark, "/data/jobs", [Scenario(slots=n) for n in (4, 8, 16)])  # doctest: +SKIP
    """
    progress = progress or Progress()
    progress.step("reading arrivals")
    recorded = record(read_lake(spark, path, columns=COLUMNS, since=since, until=until), queues)
    progress.step(f"simulating {len(scenarios)} scenarios")
    found = spark.sparkContext.parallelize(list(scenarios), len(scenarios)).map(
        lambda scenario: predict(recorded.value, scenario)
    )
    return found.collect()


def needed(
    spark: SparkSession,
    path: str | os.PathLike[str],
    *,
    within: float,
    share: float = 0.95,
    loads: Sequence[float] = (1.0,),
    queues: Sequence[str] = (),
    since: dt.date | None = None,
    until: dt.date | None = None,
    progress: Progress | None = None,
) -> dict[float, int | None]:
    """Returns by load the fewest slots with which ``share`` of the messages starts ``within`` seconds, or None."""
    progress = progress or Progress()
    progress.step("searching the number of slots")
    recorded = record(read_lake(spark, path, columns=COLUMNS, since=since, until=until), queues)
    found = spark.sparkContext.parallelize(list(loads), len(loads)).map(
        lambda load: needed_slots(recorded.value, target_ms=within * 1000, share=share, load=load)
    )
    return dict(zip(loads, found.collect(), strict=True))


def record(attempts: DataFrame, queues: Sequence[str]) -> Broadcast[list[SimulatedArrival]]:
    """Returns the arrivals as a broadcast, sent once to each executor."""
    rows = arrivals(attempts, queues).collect()
    if not rows:
        message = "The lake has no attempts that ran in these days and queues."
        raise LakeError(message)
    if len(rows) > MOST:
        message = f"There are more than {MOST:,} attempts. Choose fewer days (since, until) or queues."
        raise LakeError(message)
    return attempts.sparkSession.sparkContext.broadcast([SimulatedArrival(*row) for row in rows])


def arrivals(attempts: DataFrame, queues: Sequence[str]) -> DataFrame:
    chosen = attempts.where(F.col("queue").isin(*queues)) if queues else attempts
    return (
        chosen.select(due_ms().alias("due_ms"), run_ms().alias("run_ms"), F.col("priority").cast("int"), "channel")
        .where("run_ms is not null")
        .orderBy("due_ms")
        .limit(MOST + 1)
    )


def predict(recorded: Sequence[SimulatedArrival], scenario: Scenario) -> Prediction:
    done = simulate(recorded, scenario)
    waits = sorted(done.waits_ms)
    lasted = done.ended_ms - recorded[0].due_ms / scenario.load
    return Prediction(
        scenario=scenario,
        wait_p50_ms=at(waits, 0.5),
        wait_p95_ms=at(waits, 0.95),
        wait_p99_ms=at(waits, 0.99),
        longest_ms=waits[-1],
        utilisation=done.busy_ms / (lasted * scenario.slots) if lasted > 0 else 1.0,
    )


def at(ordered: Sequence[float], share: float) -> float:
    return ordered[max(0, math.ceil(share * len(ordered)) - 1)]


def needed_slots(
    recorded: Sequence[SimulatedArrival], *, target_ms: float, share: float, load: float, most: int = 4096
) -> int | None:
    """Finds the fewest slots with which that share of messages starts in time: by halving, as more are never slower."""

    def fits(slots: int) -> bool:
        waits = sorted(simulate(recorded, Scenario(slots=slots, load=load)).waits_ms)
        return at(waits, share) <= target_ms

    slots = 1 + bisect_left(range(1, most + 1), True, key=fits)
    return slots if slots <= most else None
