"""The history is followed, and micro-batches are written: each row once."""

from __future__ import annotations

import functools
import operator
import shutil
from typing import TYPE_CHECKING, Any

import pytest
from psycopg.conninfo import make_conninfo
from pyspark.errors import PySparkException
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadMaxRows

from django_pgqueue.spark.errors import DatabaseUnavailable, HistoryReplaced
from django_pgqueue.spark.options import PipelineOptions
from django_pgqueue.spark.reader import PgQueueReader
from django_pgqueue.spark.schema import chosen
from django_pgqueue.spark.snapshot import make_durable
from django_pgqueue.spark.stream import PgQueueStreamReader
from tests.spark.conftest import arguments, finish
from tests.spark.pipeline.test_standby import standby
from tests.spark.programs import SEND
from tests.support.databases import install, session_in
from tests.support.fixtures.servers import server
from tests.support.sessions import Session
from tests.support.waiting import wait_until

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import SparkSession

    from django_pgqueue.spark.slices import Slice
    from tests.support.fixtures.sessions import Connect
    from tests.support.server import Node, Server

__all__ = ["server", "standby"]


class Follower:
    """What Spark does with a stream reader, without Spark."""

    def __init__(self, **options: str) -> None:
        parsed = PipelineOptions.of(options)
        self.reader = PgQueueStreamReader(parsed, chosen("attempts", ["message_id"]))
        self.offset = self.reader.initialOffset()

    def next(self, limit: Any = None) -> list[int]:
        """The messages of the next micro-batch."""
        start, self.offset = self.offset, self.reader.latestOffset(self.offset, limit or ReadAllAvailable())
        return self.between(start, self.offset)

    def between(self, start: dict[str, Any], end: dict[str, Any]) -> list[int]:
        return self.read(self.reader.partitions(start, end))

    def read(self, parts: list[Slice]) -> list[int]:
        found = []
        for part in parts:
            for batch in self.reader.read(part):
                found += batch.column(0).to_pylist()
        return sorted(found)


@pytest.fixture
def follower(queue: Session, here: None) -> Follower:
    return Follower()


def test_each_row_is_read_once_and_late_commits_are_included(
    queue: Session, connect: Connect, follower: Follower
) -> None:
    late, given_up = connect(autocommit=False), connect(autocommit=False)
    first = finish(queue)
    of_late, _ = finish(late), finish(given_up)
    after = finish(queue, 2)
    assert follower.next() == first  # what comes after the oldest that runs has to wait
    given_up.rollback()
    late.commit()
    assert follower.next() == sorted(of_late + after)
    assert follower.next() == []


def test_a_server_that_crashes_has_the_transactions_that_the_stream_has_passed(
    server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It would use their ids again, behind the stream, for attempts that nothing reads."""
    with server.connect() as admin:
        admin.execute("alter system set wal_writer_delay = '10s'")
        admin.execute("select pg_reload_conf()")
        install(Session(admin))
        monkeypatch.setenv(
            "DATABASE_URL", f"postgresql://pgqueue:{server.password}@127.0.0.1:{server.primary.port}/storm"
        )
        follower = Follower()
        admin.execute("set synchronous_commit = off")
        first = finish(Session(admin))
        assert follower.next() == first
        server.crash()
    server.heal()
    with server.when_there() as admin:
        second = finish(Session(admin))
    assert follower.next() == second
    assert second > first


@pytest.mark.timeout(60)
def test_a_standby_that_is_away_holds_up_nobody_whose_commits_do_not_wait_for_it(server: Server) -> None:
    with server.connect() as reader:
        reader.execute("alter system set synchronous_standby_names = 'away'")
        reader.execute("select pg_reload_conf()")
        wait_until(lambda: reader.execute("show synchronous_standby_names").fetchone() == ("away",), "it is set")
        for level in ("local", "off"):
            reader.execute(f"set synchronous_commit = {level}".encode())
            make_durable(reader)
            assert reader.execute("show synchronous_commit").fetchone() == (level,)


@pytest.mark.slow
def test_a_replica_that_is_behind_another_one_is_waited_for(
    server: Server, standby: Node, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Several replicas may be behind one address; a part of the history that one lacks would be skipped for ever."""

    def use(node: Node) -> None:
        monkeypatch.setenv("REPLICA", f"postgresql://pgqueue:{server.password}@127.0.0.1:{node.port}/storm")

    def resume(_seconds: float) -> None:
        replica.rows("select pg_wal_replay_resume()")

    at = {"host": "127.0.0.1", "user": "pgqueue", "password": server.password, "dbname": "storm"}
    primary, behind = (make_conninfo(port=node.port, **at) for node in (server.primary, standby))
    with session_in(primary) as session, session_in(behind) as replica:
        session.rows("alter system set synchronous_commit = local")  # else commits wait for the replay
        session.rows("select pg_reload_conf()")
        install(session)
        mark = session.one("select pg_current_wal_flush_lsn()")
        wait_until(lambda: replica.one(f"select pg_last_wal_replay_lsn() >= '{mark}'"), "it has the tables", 60)
        replica.rows("select pg_wal_replay_pause()")
        use(server.primary)
        follower = Follower(replicaVariable="REPLICA")
        ids = finish(session)
        start = follower.offset
        end = follower.reader.latestOffset(start, ReadAllAvailable())
        plan = follower.reader.partitions(start, end)
        whole = follower.reader.reader.partitions()
        cut = PipelineOptions.of({"replicaVariable": "REPLICA", "toTransaction": str(end["transaction"])})
        batch = PgQueueReader(cut, chosen("attempts", ["message_id"]))
        use(standby)
        looks = (
            lambda: follower.read(plan),
            lambda: follower.read(whole),
            batch.partitions,
            lambda: follower.reader.latest(end["transaction"], 1),
        )
        with monkeypatch.context() as impatient:
            impatient.setattr("django_pgqueue.spark.snapshot.PATIENCE_SECONDS", 0)
            for look in looks:
                with pytest.raises(DatabaseUnavailable, match=r"has not reached .* same checkpoint"):
                    look()
        with monkeypatch.context() as patient:
            patient.setattr("time.sleep", resume)
            assert follower.read(plan) == ids
        assert follower.read(whole) == follower.read(batch.partitions()) == ids
        assert follower.reader.latest(end["transaction"], 1) == end["transaction"]


def test_a_micro_batch_can_be_read_again(queue: Session, connect: Connect, follower: Follower) -> None:
    start = follower.offset
    first = finish(queue, 3)
    assert follower.next() == first
    finish(queue)
    assert follower.between(start, follower.offset) == first


def test_transactions_that_write_nothing_here_make_no_micro_batch(queue: Session, follower: Follower) -> None:
    finish(queue)
    follower.next()
    before = follower.offset
    queue.rows("select pg_current_xact_id()")
    assert follower.reader.latestOffset(before, ReadAllAvailable()) == before
    assert follower.reader.partitions(before, before) == []


def test_a_micro_batch_is_bounded_but_a_transaction_is_never_cut(queue: Session, follower: Follower) -> None:
    ids = [finish(queue, number) for number in (4, 4, 25, 1, 1, 1)]
    found = []
    while batch := follower.next(ReadMaxRows(10)):
        found.append(batch)
    assert sorted(functools.reduce(operator.iadd, found, [])) == sorted(functools.reduce(operator.iadd, ids, []))
    assert max(len(batch) for batch in found) == 25
    assert all(len(batch) <= 10 for batch in found if len(batch) != 25)
    assert len(found) <= 5


def test_a_large_micro_batch_is_read_by_several_tasks(queue: Session, follower: Follower, monkeypatch: Any) -> None:
    monkeypatch.setattr("django_pgqueue.spark.slices.ROWS_A_TASK", 10)
    ids = finish(queue, 35)
    start = follower.offset
    assert follower.next() == ids
    assert len(follower.reader.partitions(start, follower.offset)) == 4


def test_a_new_stream_may_begin_now(queue: Session, here: None) -> None:
    finish(queue)
    follower = Follower(startingOffset="latest")
    assert follower.next() == []
    assert follower.next() == [] != finish(queue)
    assert len(follower.next()) == 1


def test_another_server_is_noticed(queue: Session, follower: Follower) -> None:
    follower.offset = {"transaction": 10**15}
    with pytest.raises(HistoryReplaced, match="Begin a new stream, with a new checkpoint"):
        follower.next()


def test_waiting_messages_cannot_be_followed(spark: SparkSession) -> None:
    stream = spark.readStream.format("pgqueue").option("table", "messages").load().writeStream.format("noop")
    with pytest.raises(PySparkException, match="A stream can follow only the history"):
        stream.start().awaitTermination()


def enqueue(spark: SparkSession, folder: Path, **options: str) -> None:
    """One start of a query that makes messages of files."""
    query = (
        spark.readStream.schema("id long")
        .option("maxFilesPerTrigger", 1)
        .parquet(str(folder / "in"))
        .selectExpr(f"'{SEND}' as task", "to_json(array(id)) as args")
        .writeStream.format("pgqueue")
        .options(tasks=SEND, **options)
        .option("checkpointLocation", str(folder / "checkpoint"))
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination()


def test_a_micro_batch_that_is_repeated_is_not_enqueued_again(
    spark: SparkSession, queue: Session, tmp_path: Path
) -> None:
    for number in range(2):
        spark.range(number * 10, number * 10 + 10, numPartitions=1).write.mode("append").parquet(str(tmp_path / "in"))
    enqueue(spark, tmp_path)
    assert arguments(queue) == list(range(20))
    [entry] = queue.rows("select run_id, epoch, rows from pgqueue_ledger")
    assert (entry.epoch, entry.rows) == (1, 20)
    # As a driver that was killed between the commit here and its own leaves it.
    for name in ("1", ".1.crc"):
        (tmp_path / "checkpoint" / "commits" / name).unlink(missing_ok=True)
    spark.range(20, 30, numPartitions=1).write.mode("append").parquet(str(tmp_path / "in"))
    enqueue(spark, tmp_path)
    assert arguments(queue) == list(range(30))
    [entry] = queue.rows("select run_id, epoch, rows from pgqueue_ledger")
    assert (entry.epoch, entry.rows) == (2, 30)


def test_a_checkpoint_that_is_older_than_what_was_enqueued_is_refused(
    spark: SparkSession, queue: Session, tmp_path: Path
) -> None:
    for number in range(4):
        spark.range(number, number + 1, numPartitions=1).write.mode("append").parquet(str(tmp_path / "in"))
        if number == 1:
            shutil.copytree(tmp_path / "checkpoint", tmp_path / "backup")
        enqueue(spark, tmp_path)
    shutil.rmtree(tmp_path / "checkpoint")
    (tmp_path / "backup").rename(tmp_path / "checkpoint")
    spark.range(4, 5, numPartitions=1).write.mode("append").parquet(str(tmp_path / "in"))
    with pytest.raises(PySparkException, match="up to 3 were enqueued, and this one is 1: the checkpoint is an older"):
        enqueue(spark, tmp_path)
    assert arguments(queue) == [0, 1, 2, 3]
