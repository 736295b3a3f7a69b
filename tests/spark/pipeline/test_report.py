"""What a report says, of attempts that were made up so that the answer is known."""

from __future__ import annotations

import datetime as dt
import random
import statistics
from collections import Counter
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest
from pyspark.sql import functions as F  # noqa: N812
from pyspark.sql.pandas.types import to_arrow_schema

from django_pgqueue.spark.lake.schema import REPORT_ERROR, REPORT_HOUR, REPORT_QUEUE
from django_pgqueue.spark.report import errors_by_hour, hours, percentiles, quality, queues_by_hour, rollup
from django_pgqueue.spark.schema import ATTEMPTS
from django_pgqueue.values.histogram import bucket, quantile_ms

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

MIDNIGHT = dt.datetime(2026, 3, 1, tzinfo=dt.UTC)
LIMITS: dict[str, Any] = {"since": MIDNIGHT, "until": MIDNIGHT + dt.timedelta(days=1)}
KEYS = ("queue", "task", "channel")


def at(hours: float) -> dt.datetime:
    return MIDNIGHT + dt.timedelta(hours=hours)


def attempt(number: int, created: float, started: float | None, finished: float, **more: Any) -> dict[str, Any]:
    """Times in hours since midnight."""
    times = {
        "created_at": at(created),
        "started_at": None if started is None else at(started),
        "finished_at": at(finished),
    }
    row = dict.fromkeys(ATTEMPTS.names) | {"id": number, "message_id": number, "transaction_id": number}
    row |= {
        "attempt": 1,
        "priority": 0,
        "final": True,
        "status": "succeeded",
        "queue": "mail",
        "task": "t",
        "worker": "w",
    }
    return row | {"dequeue_at": int(at(created).timestamp() * 1000)} | times | more


def frame(spark: SparkSession, rows: list[dict[str, Any]]) -> DataFrame:
    table = pa.Table.from_pylist(rows, schema=to_arrow_schema(ATTEMPTS, timezone="UTC"))
    return spark.createDataFrame(table)


def by_hour(report: DataFrame) -> dict[Any, dict[str, Any]]:
    shown = report.withColumn("number", F.hour("hour")).collect()
    return {(row["number"], *(row[key] for key in KEYS if key in row)): row.asDict() for row in shown}


def test_an_hour_counts_what_was_enqueued_in_it_and_what_ended_in_it(spark: SparkSession) -> None:
    rows = [
        attempt(1, 0.1, 0.2, 0.3),
        attempt(2, 0.1, 0.5, 1.5, status="retried", final=False, error_class="E", error_message="busy"),
        attempt(3, 0.1, 1.6, 1.7, message_id=2, attempt=2, status="failed", error_class="E", error_message="again"),
        attempt(4, 0.1, None, 1.1, status="cancelled", task=None, channel="c"),
        attempt(5, -5, 1.1, 1.2, status="lost", final=False),
        attempt(6, 0.4, 30, 30.1),
        attempt(7, 0.4, 2.1, 2.2, status="deferred", final=False),
        attempt(8, 0.4, 2.1, 2.2, status="suspended", final=False),
    ]
    waiting = frame(spark, [attempt(9, 1.9, None, 99)])
    report = hours(frame(spark, rows), waiting=waiting, targets={"mail": 0.25 * 3600}, **LIMITS)
    assert set(report.columns) == set(REPORT_HOUR.names)
    found = by_hour(report)
    first, second = found[0, "mail", "t", None], found[1, "mail", "t", None]
    assert [first["enqueued"], second["enqueued"], found[0, "mail", None, "c"]["enqueued"]] == [3, 1, 1]
    assert [first["succeeded"], second["retried"], second["failed"], second["lost"]] == [1, 1, 1, 1]
    assert found[1, "mail", None, "c"]["cancelled"] == 1
    third = found[2, "mail", "t", None]
    assert [third["deferred"], *third["run_histogram"].values()] == [2, 2]
    assert [second["messages"], second["message_attempts"]] == [1, 2]
    assert [first["sla_misses"], second["sla_misses"]] == [0, 3]
    assert second["run_ms"] == pytest.approx(1.1 * 3_600_000)
    assert second["run_histogram"] == {bucket(3_600_000): 1, bucket(360_000): 1}
    errors = errors_by_hour(frame(spark, rows), **LIMITS)
    assert set(errors.columns) == set(REPORT_ERROR.names)
    [error] = errors.collect()
    assert [error["attempts"], error["example"]] == [2, "again"]


def test_percentiles_of_a_day_are_those_of_its_rows_to_the_promised_error(spark: SparkSession) -> None:
    chance = random.Random(7)
    runs = [chance.lognormvariate(-7, 1.5) for _ in range(1000)]
    rows = [attempt(n, n % 24, n % 24, n % 24 + run, task=f"t{n % 3}") for n, run in enumerate(runs)]
    report = hours(frame(spark, rows), since=MIDNIGHT, until=MIDNIGHT + dt.timedelta(days=9))
    whole = rollup(report, ["queue"])
    [row] = percentiles(whole, [0.5, 0.99]).collect()
    cuts = statistics.quantiles([run * 3_600_000 for run in runs], n=100, method="inclusive")
    # Half a bucket, and the step from one of 1,000 rows to the next.
    assert row["run_p50_ms"] == pytest.approx(cuts[49], rel=0.03)
    assert row["run_p99_ms"] == pytest.approx(cuts[98], rel=0.2)
    assert row["succeeded"] == 1000
    histograms = [row["run_histogram"] for row in report.select("run_histogram").collect()]
    assert sum(map(Counter, histograms), Counter()) == row["run_histogram"]
    assert quantile_ms(row["run_histogram"], 0.5) == pytest.approx(row["run_p50_ms"])


def test_the_depth_of_a_queue_is_that_of_each_hour_also_when_nothing_happens(spark: SparkSession) -> None:
    rows = [attempt(n, -1, 3.5, 4.5, worker=f"w{n}") for n in (1, 2, 3)]
    rows.append(attempt(4, 0.5, 0.75, 0.8))
    waiting = frame(spark, [attempt(9, 22.5, None, 99)])
    report = queues_by_hour(frame(spark, rows), waiting=waiting, **LIMITS)
    assert set(report.columns) == set(REPORT_QUEUE.names)
    found = {number: row for (number, _), row in by_hour(report).items()}
    assert sorted(found) == [0, 1, 2, 3, 4, 22, 23]
    assert [found[n]["depth"] for n in sorted(found)] == [3, 3, 3, 0, 0, 1, 1]
    assert [found[n]["depth_max"] for n in (0, 3)] == [4, 3]
    assert [found[n]["running"] for n in (3, 4)] == [pytest.approx(1.5)] * 2
    assert [found[3]["running_max"], found[3]["slots"], found[0]["slots"]] == [3, 3, 1]


def test_a_report_needs_no_reserved_word_of_ansi_as_a_name(spark: SparkSession) -> None:
    strict = "spark.sql.ansi.enforceReservedKeywords"
    attempts = frame(spark, [attempt(1, 0, 0.5, 1)])
    spark.conf.set(strict, "true")
    try:
        for figures in (hours, queues_by_hour, errors_by_hour):
            assert figures(attempts, **LIMITS).count() == (0 if figures is errors_by_hour else 2)
        assert quality(attempts, **LIMITS).attempts == 1
    finally:
        spark.conf.unset(strict)


def test_the_quality_of_the_data_is_told(spark: SparkSession) -> None:
    rows = [attempt(n, n, n + 0.1, n + 0.2) for n in range(4)]
    limits = {"since": MIDNIGHT, "until": MIDNIGHT + dt.timedelta(days=9)}
    fine = quality(frame(spark, rows), **limits)
    assert [fine.attempts, fine.duplicates, fine.disordered, fine.empty_days] == [4, 0, 0, ()]
    assert fine.lines()[0] == "no duplicates"
    rows += [attempt(3, 3, 3.1, 3.2), attempt(5, 5, 4.9, 5.2), attempt(6, 6, None, 5.5), attempt(7, 6, 6.2, 6.1)]
    rows += [attempt(8, 72, 72.1, 72.2), attempt(9, 1, 1, 24 * 10)]
    found = replace(quality(frame(spark, rows), **limits), missed=3, unread=12, unread_seconds=61.5)
    assert found.lines() == [
        "duplicates: 1 of 9 attempts",
        "retention dropped 3 attempts before they were exported; no attempts on 2026-03-02, 2026-03-03",
        "clocks: the times of 3 attempts are in disorder",
        "lag: 12 attempts are not exported yet, the first ended 0:01:01 ago",
    ]
