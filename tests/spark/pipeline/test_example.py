"""The way round: rows become jobs that run."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import pytest

from django_pgqueue.spark.source import registered
from django_pgqueue.spark.tasks import declared
from tests.support.fixtures.workers import diary, environment, rows, session, start
from tests.support.site.tasks import write_row
from tests.support.waiting import wait_until

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from tests.support.fixtures.workers import Session, Start

__all__ = ["diary", "environment", "rows", "session", "start"]
pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.slow]
JOBS = 100_000 if "PGQUEUE_SPARK_LONG" in os.environ else 1_000


def test_rows_of_a_dataframe_become_jobs_and_each_runs_once(
    spark: SparkSession, start: Start, session: Session, rows: str
) -> None:
    # Other tests of a run leave sessions of their own active in the same JVM.
    frame = (
        registered(spark)
        .range(JOBS, numPartitions=2)
        .selectExpr(f"'{write_row.module_path}' as task", "to_json(array(cast(id as string))) as args")
    )
    frame.write.format("pgqueue").option("tasks", declared(write_row)).mode("append").save()
    start("--threads", "4")
    succeeded = "select count(*) from pgqueue_attempt where final and status = 'succeeded'"
    wait_until(lambda: session.value(succeeded) == JOBS, "all jobs have succeeded", 60 + JOBS / 200)
    written = session.rows("select count(*), count(distinct word), max(word::int) from worker_row")
    assert written == [(JOBS, JOBS, JOBS - 1)]
    assert session.value("select count(*) from pgqueue_message") == 0
