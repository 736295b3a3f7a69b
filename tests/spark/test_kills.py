"""Drivers are killed at any point, and started again: nothing is lost and nothing comes twice.

The suite has a few kills; PGQUEUE_SPARK_KILLS says how many of each kind otherwise (20 for a night).
"""

from __future__ import annotations

import os
import random
import subprocess
from typing import TYPE_CHECKING

import pytest

from tests.spark import programs
from tests.spark.conftest import finish, numbers

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import SparkSession

    from tests.sql.sessions import Session

KILLS = int(os.environ.get("PGQUEUE_SPARK_KILLS", "1"))
ROWS = 60_000


def killed(process: subprocess.Popen[str], after: float) -> bool:
    """Kills it so many seconds after it was ready; False: it was faster."""
    assert process.stdout is not None
    assert process.stdout.readline() == "ready\n"
    try:
        process.wait(after)
    except subprocess.TimeoutExpired:
        programs.kill(process)
        return True
    return False


@pytest.mark.slow
@pytest.mark.timeout(300 + 60 * KILLS)
def test_a_run_whose_driver_is_killed_is_enqueued_once_when_it_is_run_again(queue: Session, url: str) -> None:
    chance = random.Random(6)
    for number in range(KILLS):
        process = programs.start("enqueue", "local[2]", f"run {number}", ROWS, 3, url=url)
        killed(process, chance.uniform(1, 8))
        found = queue.one("select count(*) from pgqueue_message")
        assert found in (0, ROWS), "half of it is there"
        # Other rows in each partition than the first time: it makes no difference.
        programs.answer(programs.start("enqueue", "local[2]", f"run {number}", ROWS, 2, url=url))
        rows = queue.rows("select count(*) as rows, count(distinct content) as different from pgqueue_message")
        assert rows == [(ROWS, ROWS)]
        queue.rows("truncate pgqueue_message")


@pytest.mark.slow
@pytest.mark.timeout(300 + 60 * KILLS)
def test_a_stream_whose_driver_is_killed_goes_on_where_it_was(
    spark: SparkSession, queue: Session, url: str, tmp_path: Path
) -> None:
    chance = random.Random(7)
    for _ in range(KILLS):
        for _ in range(10):
            finish(queue, 300)
        killed(programs.start("follow", "local[2]", tmp_path, url=url), chance.uniform(2, 10))
    programs.answer(programs.start("follow", "local[2]", tmp_path, url=url))
    expected = queue.column("select message_id from pgqueue_attempt order by 1")
    assert numbers(spark.read.parquet(str(tmp_path / "lake"))) == expected
