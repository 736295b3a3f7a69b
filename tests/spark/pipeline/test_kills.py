"""kill -9 of drivers with all their processes, and of executors, at any moment, while eight writers write the history.

The suite kills one driver.  PGQUEUE_KILLS=20 kills so often, exports and follows in turns, and as often in a cluster of
two executors; it takes some minutes.  PGQUEUE_SEED is where the chances come from.
"""

from __future__ import annotations

import os
import random
import time
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from django_pgqueue.spark.lake import Lake, NotALake, read_lake
from django_pgqueue.spark.pipeline import export
from tests.spark import programs
from tests.spark.conftest import finish
from tests.spark.pipeline.conftest import settled
from tests.spark.pipeline.test_export import ids
from tests.spark.pipeline.writers import Writers
from tests.spark.torment import Torment
from tests.support.waiting import wait_until

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import SparkSession

    from tests.support.fixtures.sessions import Connect

KILLS = int(os.environ.get("PGQUEUE_KILLS", "1"))
SEED = os.environ.get("PGQUEUE_SEED", "1")
LINES, MAX_SECONDS = 8, 0.7
PIECE, PIECES = 50, 15
pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.slow, pytest.mark.timeout(300 + 120 * KILLS)]


def test_after_kills_the_lake_has_each_committed_attempt_once(  # noqa: PLR0917
    spark: SparkSession, lake: Path, options: dict[str, str], connect: Connect, conninfo: str, url: str
) -> None:
    session, chance = connect(), random.Random(SEED)
    begun = time.monotonic()
    with Writers(conninfo):
        for kill in range(KILLS):
            said = kill_one(("follow", "export")[kill % 2], lake, url, chance)
            seen = visible(spark, lake)
            print(f"kill {kill + 1} after {said[-1]!r}: {len(seen)} attempts in the lake")
            assert len(seen) == len(set(seen)), "a row twice"
    settled(session)
    export(spark, lake, options=options)
    history = [attempt.id for attempt in session.history()]
    print(f"{KILLS} kills of drivers, {len(history)} attempts, seed {SEED}, {time.monotonic() - begun:.0f} s")
    assert ids(spark, lake) == history


def test_a_first_export_that_is_killed_repeats_less_than_a_piece(
    spark: SparkSession, lake: Path, options: dict[str, str], connect: Connect, url: str
) -> None:
    session, every = connect(), PIECE * PIECES
    for _ in range(PIECES):
        finish(session, PIECE)
    settled(session)
    process = programs.start("go_on", "local[2]", "export", lake, PIECE, url=url, log=lake.parent / "log")
    try:
        wait_until(lambda: len(list(lake.glob("attempts/_delta_log/0*.json"))) > 2, "two pieces are in the lake", 200)
    finally:
        programs.kill(process)
    files = Lake.open(spark, lake).version().files()
    done = sum(file.rows for file in files)
    assert PIECE <= done < every
    unlisted = {*lake.rglob("*.parquet")} - {lake / "attempts" / file.path for file in files}
    assert sum(rows_of(path) for path in unlisted) <= PIECE
    assert export(spark, lake, options=options).rows == every - done
    assert ids(spark, lake) == [attempt.id for attempt in session.history()]


def rows_of(path: Path) -> int:
    """Of a file that may have been cut off: then it counts as nothing."""
    try:
        return int(pq.read_metadata(path).num_rows)
    except (OSError, pa.ArrowInvalid):
        return 0


@pytest.mark.skipif(KILLS < 2, reason="takes minutes: set PGQUEUE_KILLS")
def test_after_kills_in_a_cluster_the_lake_has_each_committed_attempt_once(
    spark: SparkSession, connect: Connect, conninfo: str, url: str, tmp_path: Path
) -> None:
    session, begun, lake = connect(), time.monotonic(), tmp_path / "jobs"
    torment = Torment(
        lambda: programs.start("keep_up", "local-cluster[2,1,1024]", tmp_path, url=url, log=tmp_path / "log"),
        lambda driver: programs.executors(driver.pid),
        lambda: len(list(lake.glob("attempts/_delta_log/*.json"))),
        random.Random(SEED),
    )
    try:
        with Writers(conninfo):
            for kill in range(KILLS):
                kind = torment.kill()
                seen = visible(spark, lake)
                print(f"kill {kill + 1}, of {kind}: {len(seen)} attempts in the lake")
                assert len(seen) == len(set(seen)), "a row twice"
        settled(session)
        (tmp_path / "enough").touch()
        answer = programs.answer(torment.driver)
    finally:
        torment.end()
    history = [attempt.id for attempt in session.history()]
    print(f"{dict(torment.killed)}, {len(history)} attempts, seed {SEED}, {time.monotonic() - begun:.0f} s")
    assert answer["ids"] == ids(spark, lake) == history


def kill_one(step: str, lake: Path, url: str, chance: random.Random) -> list[str]:
    """Kills a driver some time after one of its first lines.  Answers what it said."""
    process = programs.start("go_on", "local[2]", step, lake, url=url, log=lake.parent / "log")
    assert process.stdout is not None
    try:
        said = [process.stdout.readline().strip() for _ in range(chance.randint(1, LINES))]
        time.sleep(chance.uniform(0, MAX_SECONDS))  # the moment is what is left to chance here
    finally:
        programs.kill(process)
    assert all(said), "it ended by itself"
    return said


def visible(spark: SparkSession, lake: Path) -> list[int]:
    """All of every file that the log names, or an error about a torn one."""
    try:
        found = [row["id"] for row in read_lake(spark, lake).collect()]
        version = Lake.open(spark, lake).version()
    except NotALake:  # killed before there was one
        return []
    assert len(found) <= sum(file.rows for file in version.files()), "more than the log knows"
    return found
