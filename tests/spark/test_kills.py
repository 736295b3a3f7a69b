"""Drivers and executors are killed at any point: nothing is lost and nothing comes twice.

The suite kills one driver; PGQUEUE_SPARK_KILLS says how many of each test otherwise (20 for a night), and PGQUEUE_SEED
where the chances come from.
"""

from __future__ import annotations

import os
import random
import subprocess
import time
from typing import TYPE_CHECKING

import pytest

from tests.spark import programs
from tests.spark.test_cluster import standalone
from tests.spark.torment import Torment

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import SparkSession

    from tests.support.sessions import Session

KILLS = int(os.environ.get("PGQUEUE_SPARK_KILLS", "1"))
SEED = int(os.environ.get("PGQUEUE_SEED", "6"))
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
@pytest.mark.timeout(600 + 60 * KILLS)
def test_a_run_whose_driver_is_killed_is_enqueued_once_when_it_is_run_again(
    spark: SparkSession, queue: Session, url: str
) -> None:
    chance = random.Random(SEED)
    for number in range(KILLS):
        process = programs.start("enqueue", "local[2]", f"run {number}", ROWS, 3, url=url)
        killed(process, chance.uniform(1, 8))
        found = queue.one("select count(*) from pgqueue_message")
        assert found in (0, ROWS), "half of it is there"
        # Other rows in each partition than the first time: it makes no difference.
        programs.enqueue(spark, f"run {number}", str(ROWS), "2")
        rows = queue.rows("select count(*) as rows, count(distinct content) as different from pgqueue_message")
        assert rows == [(ROWS, ROWS)]
        queue.rows("truncate pgqueue_message")


RUNS = """
    select content -> 'args' ->> 0 as run, count(*) as rows, count(distinct content) as different
    from pgqueue_message group by 1
"""
ROWS_OF_A_RUN = 12_000


@pytest.mark.skipif(KILLS < 2, reason="takes minutes: set PGQUEUE_SPARK_KILLS")
@pytest.mark.timeout(600 + 60 * KILLS)
def test_each_row_is_one_message_despite_failures_delays_and_kills(queue: Session, url: str, tmp_path: Path) -> None:
    """On a cluster of two hosts: tasks fail, tasks run twice by speculation, executors and drivers are killed."""
    begun, enough = time.monotonic(), tmp_path / "enough"

    def start() -> subprocess.Popen[str]:
        # The last run that was enqueued is tried again, too.
        first = max(0, queue.one("select count(*) from pgqueue_ledger") - 1)
        arguments = (master, first, ROWS_OF_A_RUN, enough)
        return programs.start("enqueue_on", *arguments, url=url, log=tmp_path / "log")

    with standalone(url, tmp_path, "127.0.0.1", "127.0.0.2") as master:
        done = lambda: queue.one("select count(*) from pgqueue_ledger")  # noqa: E731
        torment = Torment(start, lambda _: programs.executors(os.getpid()), done, random.Random(SEED))
        try:
            for number in range(KILLS):
                kind = torment.kill()
                runs = queue.rows(RUNS)
                print(f"kill {number + 1}, of {kind}: {len(runs)} runs are enqueued")
                assert {(run.rows, run.different) for run in runs} <= {(ROWS_OF_A_RUN, ROWS_OF_A_RUN)}
            enough.touch()
            last = programs.answer(torment.driver)["runs"]
        finally:
            torment.end()
    print(f"{dict(torment.killed)}, {last} runs, seed {SEED}, {time.monotonic() - begun:.0f} s")
    found = {int(run.run): (run.rows, run.different) for run in queue.rows(RUNS)}
    assert found == dict.fromkeys(range(last), (ROWS_OF_A_RUN, ROWS_OF_A_RUN))
    assert queue.one("select count(*) from pgqueue_ledger") == last
