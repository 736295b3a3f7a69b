"""kill -9 of drivers with all their processes, and of executors, at any moment, while eight writers write the history.

The suite kills one driver.  PGQUEUE_KILLS=20 kills so often on one machine, in a cluster of two executors, and in a
cluster whose executors have disks of their own, with the lake in a store; it takes some minutes.  In between retention
drops days and the database gets another name.  PGQUEUE_SEED is where the chances come from.
"""

from __future__ import annotations

import os
import random
import time
from contextlib import ExitStack
from typing import TYPE_CHECKING, Any
from uuid import uuid4

import psycopg
import pytest
from deltalake import DeltaTable
from psycopg.conninfo import conninfo_to_dict, make_conninfo

from django_pgqueue.functions import sql_files
from django_pgqueue.spark.pipeline import export
from tests.spark import programs
from tests.spark.bench import first_export
from tests.spark.conftest import environment, finish, private_disk, url_of
from tests.spark.pipeline.conftest import BUCKET, settled
from tests.spark.pipeline.writers import Writers
from tests.spark.test_cluster import standalone
from tests.spark.torment import Torment
from tests.support.databases import empty_database, install, session_in
from tests.support.waiting import wait_until

if TYPE_CHECKING:
    import subprocess
    from collections.abc import Iterator
    from pathlib import Path

    from pyspark.sql import SparkSession

    from tests.support.fixtures.sessions import Connect

KILLS = int(os.environ.get("PGQUEUE_KILLS", "1"))
SEED = os.environ.get("PGQUEUE_SEED", "1")
PIECE, PIECES = 50, 15
RETENTION_EVERY, RENAME_EVERY = 4, 6
pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.slow, pytest.mark.timeout(600 + 120 * KILLS)]
OLD = "select count(*) from pgqueue_attempt where finished_at < now() - interval '3 days'"


class World:
    """A database, those who write it, a lake, and a driver that is killed."""

    def __init__(self, conninfo: str, folder: Path, lake: str, master: str) -> None:
        self.conninfo = conninfo
        self.folder = folder
        self.lake = lake
        self.master = master
        self.writers = Writers(conninfo)

    def start(self) -> subprocess.Popen[str]:
        url, log = url_of(self.conninfo), self.folder / "log"
        return programs.start("keep_up", self.master, self.lake, self.folder / "enough", url=url, log=log)

    def executors(self, driver: subprocess.Popen[str]) -> list[int]:
        return programs.executors(os.getpid() if self.master.startswith("spark:") else driver.pid)

    def commits(self) -> int:
        table = self.table("attempts")
        return 0 if table is None else table.version()

    def table(self, name: str) -> DeltaTable | None:
        address = f"{self.lake}/{name}"
        return DeltaTable(address) if DeltaTable.is_deltatable(address) else None

    def rows(self, name: str, *columns: str) -> list[tuple[Any, ...]]:
        """All of every file that the log names, or an error about a torn one."""
        table = self.table(name)
        if table is None:
            return []
        whole = table.to_pyarrow_table()
        return list(zip(*(whole[column].to_pylist() for column in columns), strict=True))

    def retain(self) -> int:
        """Retention drops the days of which the lake has everything.  Returns how many attempts those had."""
        with session_in(self.conninfo) as session:
            every = session.one(OLD)

            def is_dropped() -> bool:
                session.value("pgqueue_attempt_maintain", days_ahead=0, days_kept=2, lake_days=1000)
                return bool(session.one(OLD) == 0)

            wait_until(is_dropped, "the lake has the old days, and retention drops them", 300)
            assert session.one("select sum(missed_attempts) from pgqueue_lake") == 0
        return int(every)

    def rename(self) -> None:
        """Nobody may be connected to a database that gets another name."""
        old = str(conninfo_to_dict(self.conninfo)["dbname"])
        new = old.removesuffix("_renamed") if old.endswith("_renamed") else f"{old}_renamed"
        with psycopg.connect(self.conninfo, autocommit=True, dbname="postgres") as connection:

            def is_renamed() -> bool:
                query = "select count(pg_terminate_backend(pid)) from pg_stat_activity where datname = %s"
                connection.execute(query, [old])
                try:
                    connection.execute(f'alter database "{old}" rename to "{new}"'.encode())
                except psycopg.errors.ObjectInUse:
                    return False
                return True

            wait_until(is_renamed, "nobody uses the database", 60)
        self.conninfo = self.writers.conninfo = make_conninfo(self.conninfo, dbname=new)


@pytest.fixture
def world(conninfo: str, tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[World]:
    """On one machine, in a cluster, or in one with private disks."""
    where = request.param
    if where != "local[2]" and KILLS < 2:
        pytest.skip("takes minutes: set PGQUEUE_KILLS")
    with ExitStack() as stack:
        found = World(stack.enter_context(empty_database(conninfo, "kills")), tmp_path, str(tmp_path / "jobs"), where)
        with session_in(found.conninfo) as session:
            install(session)
            session.rows(sql_files.load("movable_clock"))
        if where == "private disks":
            prefix = private_disk(tmp_path / "place")
            stack.enter_context(environment(**request.getfixturevalue("store")))
            found.lake = f"s3://{BUCKET}/{uuid4().hex}"
            found.master = stack.enter_context(standalone(url_of(found.conninfo), tmp_path, "127.0.0.1", prefix=prefix))
        yield found
        if "_renamed" in found.conninfo:
            found.rename()  # so that it is dropped


@pytest.mark.parametrize("world", ["local[2]", "local-cluster[2,1,1024]", "private disks"], indirect=True)
def test_after_kills_the_lake_has_each_committed_attempt_and_step_once(world: World) -> None:
    begun, chance = time.monotonic(), random.Random(f"{SEED} {world.master.partition(':')[0]}")
    torment = Torment(world.start, world.executors, world.commits, chance)
    dropped = renamed = 0
    try:
        for kill in range(1, KILLS + 1):
            with world.writers:
                kind = torment.kill()
            seen = world.rows("attempts", "id")
            print(f"kill {kill}, of {kind}: {len(seen)} attempts in the lake", flush=True)
            assert len(seen) == len(set(seen)), "a row twice"
            if kill % RETENTION_EVERY == 0:
                dropped += world.retain()
            if kill % RENAME_EVERY == 0:
                torment.restart(world.rename)
                renamed += 1
        (world.folder / "enough").touch()
        turns = programs.answer(torment.driver)["turns"]
    finally:
        torment.end()
    seen, ended = world.rows("attempts", "id", "message_id", "final"), world.writers.ended
    steps = [row[0] for row in world.rows("steps", "message_id")]
    print(
        f"{dict(torment.killed)}, {dropped} attempts dropped, renamed {renamed} times, {len(seen)} attempts, "
        f"{len(steps)} steps, seed {SEED}, {time.monotonic() - begun:.0f} s, {turns} turns of the last driver"
    )
    assert len(seen) == len({row[0] for row in seen}) == len(ended)
    assert {row[1] for row in seen} == ended
    assert sorted(steps) == sorted(world.writers.steps)


def test_a_first_export_that_is_killed_repeats_less_than_a_piece(
    spark: SparkSession, lake: Path, options: dict[str, str], connect: Connect, url: str
) -> None:
    session, every = connect(), PIECE * PIECES
    for _ in range(PIECES):
        finish(session, PIECE)
    settled(session)
    process = programs.start("go_on", "local[2]", lake, PIECE, url=url, log=lake.parent / "log")
    table = lake / "attempts"
    found = first_export.attempt(process, table, lambda: len(first_export.pieces(table)) > 1)
    assert found.is_killed
    assert PIECE <= found.rows < every
    assert found.repeated <= PIECE
    assert export(spark, lake, options=options).rows == every - found.rows
    there = first_export.in_postgresql(session.connection)
    assert first_export.in_duckdb(table, lake.parent / "spill") == there
    assert there.rows == there.distinct == every
