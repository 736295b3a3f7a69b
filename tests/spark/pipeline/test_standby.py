"""A real standby: what an export from it waits for, and what it cannot hold back on the primary."""

from __future__ import annotations

import signal
import time
from functools import partial
from importlib import import_module
from types import SimpleNamespace
from typing import TYPE_CHECKING

import pytest
from psycopg.conninfo import make_conninfo

from django_pgqueue.spark import database
from django_pgqueue.spark.lake import read_lake
from django_pgqueue.spark.lake.data_files import seen, write
from django_pgqueue.spark.pipeline import export
from django_pgqueue.spark.pipeline.source_database import Origin
from tests.spark.conftest import finish
from tests.spark.pipeline.conftest import url_without_password
from tests.spark.pipeline.test_durable import begin, end
from tests.spark.pipeline.test_export import Said, ids
from tests.support.databases import install, session_in
from tests.support.fixtures.servers import server
from tests.support.waiting import wait_until

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from pyspark.sql import SparkSession

    from django_pgqueue.spark.lake import Lake
    from django_pgqueue.spark.lake.data_files import Counted
    from django_pgqueue.spark.reader import PgQueueReader
    from tests.support.server import Node, Server

__all__ = ["server"]


@pytest.fixture
def standby(server: Server) -> Iterator[Node]:
    standby = server.standby()
    try:
        yield standby
    finally:
        standby.end(signal.SIGQUIT)


@pytest.mark.django_db(transaction=True)
@pytest.mark.slow
@pytest.mark.once
def test_an_export_from_a_standby_names_what_it_waits_for_and_standbys_hold_nothing_back(
    spark: SparkSession, server: Server, standby: Node, tmp_path: Path
) -> None:
    at, said = {"host": "127.0.0.1", "user": "pgqueue", "password": server.password, "dbname": "storm"}, Said()
    primary, replica = (make_conninfo(port=node.port, **at) for node in (server.primary, standby))
    with session_in(primary) as session, session_in(primary) as late, session_in(replica) as reader:
        install(session)
        finish(session)
        late.rows("begin")
        number, pid = late.rows("select pg_current_xact_id()::text::bigint, pg_backend_pid()")[0]
        finish(late)
        finish(session)
        wait_until(lambda: reader.one("select count(*) from pgqueue_attempt") == 2, "the standby has it")

        from_replica = {"url": url_without_password(replica, tmp_path)}
        assert export(spark, tmp_path / "lake", options=from_replica).rows == 1
        assert export(spark, tmp_path / "lake", options=from_replica, progress=said).rows == 0
        assert "read-only transaction" in said.said[0]
        assert (
            f"wait for transaction {number}, whose end this replica does not have yet. On the primary: " in said.said[1]
        )
        query = said.said[1].partition("On the primary: ")[2].partition(". If")[0]
        assert session.one(query) == pid
        with database.connect(replica) as connection:
            words = Origin(connection, primary).held_back(number)
        assert words is not None
        assert f"wait for session {pid} (" in words

        reader.rows("alter system set hot_standby_feedback = on")
        reader.rows("alter system set wal_receiver_status_interval = '1s'")
        reader.rows("select pg_reload_conf()")
        reader.rows("begin isolation level repeatable read")
        reader.rows("select count(*) from pgqueue_attempt")
        feedback = "select backend_xmin::text::bigint from pg_stat_replication"
        wait_until(lambda: session.one(feedback) is not None, "the primary keeps what the standby sees", 60)
        late.rows("commit")
        finish(session)
        with database.connect(primary) as connection:
            assert Origin(connection, primary).horizon() > number >= session.one(feedback)


@pytest.mark.django_db(transaction=True)
@pytest.mark.slow
def test_an_export_waits_for_a_replica_that_is_behind_the_one_at_which_it_began(
    spark: SparkSession, server: Server, standby: Node, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Several replicas may be behind one address."""
    at = {"host": "127.0.0.1", "user": "pgqueue", "password": server.password, "dbname": "storm"}
    primary, behind = (make_conninfo(port=node.port, **at) for node in (server.primary, standby))
    options, lake = {"url": url_without_password(primary, tmp_path), "replicaVariable": "REPLICA"}, tmp_path / "lake"
    waits: list[str] = []

    def fill(lake: Lake, reader: PgQueueReader) -> list[Counted]:
        """In this process, whose variable can change."""
        table = reader.options.table

        def resume(_seconds: float) -> None:
            waits.append(table)
            replica.rows("select pg_wal_replay_resume()")

        with monkeypatch.context() as read_behind:
            read_behind.setenv("REPLICA", behind)
            read_behind.setattr(
                "django_pgqueue.spark.snapshot.time", SimpleNamespace(monotonic=time.monotonic, sleep=resume)
            )
            files = [file for part in reader.partitions() for file in write(reader, lake.place / table, part)]
        return [seen(lake, table, file) for file in files]

    monkeypatch.setenv("REPLICA", primary)
    monkeypatch.setattr(import_module("django_pgqueue.spark.pipeline.export"), "fill", fill)
    monkeypatch.setattr("django_pgqueue.spark.pipeline.source_database.same_environment", lambda *_: None)
    with session_in(primary) as session, session_in(behind) as replica:
        session.rows("alter system set synchronous_commit = local")  # else commits wait for the replay
        session.rows("select pg_reload_conf()")
        install(session)
        held = begin(session)
        for finish_one, table in ((lambda: end(session, held), "steps"), (lambda: finish(session), "attempts")):
            mark = session.one("select pg_current_wal_flush_lsn()")
            wait_until(partial(replica.one, f"select pg_last_wal_replay_lsn() >= '{mark}'"), "it has all so far", 60)
            replica.rows("select pg_wal_replay_pause()")
            finish_one()
            waits.clear()
            assert export(spark, lake, options=options).rows == 1
            assert waits[0] == table
        assert ids(spark, lake) == [attempt.id for attempt in session.history()]
        assert read_lake(spark, lake, "steps").count() == 1
