"""Spark Connect: the data source works with it, and the steps of the pipeline refuse it.  Needs grpcio and pandas."""

from __future__ import annotations

import os
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

from tests.spark.conftest import arguments, finish
from tests.support.pages import ROOT

if TYPE_CHECKING:
    from pathlib import Path

    from tests.support.sessions import Session

PROGRAM = """
import sys
from django_pgqueue.spark import pipeline
from django_pgqueue.spark.errors import SparkConnectRefused
from django_pgqueue.spark.session import start

spark = start("connect")
assert ".connect." in type(spark).__module__
attempts = spark.read.format("pgqueue").load()
assert attempts.where("status = 'cancelled'").count() == 3
rows = spark.createDataFrame([("[7]",)], "args string").selectExpr("'shop.tasks.ship' as task", "args")
rows.write.format("pgqueue").option("tasks", "shop.tasks.ship").mode("append").save()
for step in (pipeline.export, pipeline.report, pipeline.whatif):
    try:
        step(spark, sys.argv[1], *[[]] * (step is pipeline.whatif))
    except SparkConnectRefused as error:
        assert "this session" in str(error)
    else:
        raise AssertionError(step)
"""


def test_rows_are_read_and_jobs_written_and_the_pipeline_refuses(url: str, queue: Session, tmp_path: Path) -> None:
    pytest.importorskip("grpc_status")
    pytest.importorskip("pandas")
    finish(queue, 3)
    ended = subprocess.run(
        [sys.executable, "-c", PROGRAM, str(tmp_path / "lake")],
        env={**os.environ, "DATABASE_URL": url, "SPARK_REMOTE": "local[1]"},
        capture_output=True,
        text=True,
        check=False,
        cwd=ROOT,
        timeout=240,
    )
    assert ended.returncode == 0, ended.stderr
    assert arguments(queue) == [7]
    assert not (tmp_path / "lake").exists()
