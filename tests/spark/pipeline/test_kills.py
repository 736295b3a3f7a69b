"""kill -9 of the driver with all its processes, at any moment, while eight writers write the history.

The suite kills once.  PGQUEUE_KILLS=20 kills so often, exports and follows in turns; it takes some minutes.
"""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import time
from typing import TYPE_CHECKING

import pytest

from django_pgqueue.spark.lake import LakeConflict, NotALake, read_lake
from django_pgqueue.spark.pipeline import export
from tests.spark.pipeline.conftest import settled
from tests.spark.pipeline.test_export import ids
from tests.spark.pipeline.writers import Writers
from tests.waiting import wait_until

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import SparkSession

    from tests.sql.conftest import Connect

KILLS = int(os.environ.get("PGQUEUE_KILLS", "1"))
LINES, LONGEST_SECONDS = 8, 0.7
pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.slow, pytest.mark.timeout(300 + 120 * KILLS)]


def test_whatever_is_killed_the_lake_has_each_committed_attempt_once(
    spark: SparkSession, lake: Path, options: dict[str, str], connect: Connect, conninfo: str
) -> None:
    session, chance = connect(), random.Random(os.environ.get("PGQUEUE_SEED", "1"))
    with Writers(conninfo):
        for kill in range(KILLS):
            said = kill_one(("follow", "export")[kill % 2], lake, chance)
            seen = visible(spark, lake)
            print(f"kill {kill + 1} after {said[-1]!r}: {len(seen)} attempts in the lake")
            assert len(seen) == len(set(seen)), "a row twice"
    settled(session)
    wait_until(lambda: exported(spark, lake, options), "the lock of the last one is free", 60)
    assert ids(spark, lake) == [attempt.id for attempt in session.history()]


def kill_one(step: str, lake: Path, chance: random.Random) -> list[str]:
    """Kills a driver some time after one of its first lines.  Answers what it said."""
    process = subprocess.Popen(
        [sys.executable, "-m", "tests.spark.pipeline.exporter", step, str(lake)],
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
        start_new_session=True,
    )
    assert process.stdout is not None
    try:
        said = [process.stdout.readline().strip() for _ in range(chance.randint(1, LINES))]
        time.sleep(chance.uniform(0, LONGEST_SECONDS))  # the moment is what is left to chance here
    finally:
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()
        process.stdout.close()
    assert all(said), "it ended by itself"
    return said


def visible(spark: SparkSession, lake: Path) -> list[int]:
    try:
        return [row["id"] for row in read_lake(spark, lake).select("id").collect()]
    except NotALake:  # killed before there was one
        return []


def exported(spark: SparkSession, lake: Path, options: dict[str, str]) -> bool:
    try:
        export(spark, lake, options=options)
    except LakeConflict:
        return False
    return True
