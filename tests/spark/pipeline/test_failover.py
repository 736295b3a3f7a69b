"""A replica that took over without the last transactions: the numbers of these come again, for others."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import pytest
from psycopg.conninfo import make_conninfo

from django_pgqueue.spark.errors import HistoryReplaced, SparkQueueError
from django_pgqueue.spark.lake import Lake
from django_pgqueue.spark.lake.upkeep import erase
from django_pgqueue.spark.pipeline import adopt, export
from django_pgqueue.spark.pipeline.known_position import KnownPosition, Missed
from tests.spark.conftest import finish
from tests.spark.pipeline.conftest import url_without_password
from tests.spark.pipeline.test_export import ids
from tests.spark.pipeline.test_standby import standby
from tests.support.databases import install, session_in
from tests.support.fixtures.servers import server
from tests.support.sessions import Session
from tests.support.waiting import wait_until

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import SparkSession

    from tests.support.server import Node, Server

__all__ = ["server", "standby"]


@pytest.mark.django_db(transaction=True)
@pytest.mark.slow
@pytest.mark.once
def test_a_server_that_has_lost_what_the_lake_has_is_refused_though_it_has_come_further(
    spark: SparkSession, server: Server, standby: Node, tmp_path: Path
) -> None:
    lake = tmp_path / "lake"
    at = {"host": "127.0.0.1", "user": "pgqueue", "password": server.password, "dbname": "storm"}
    before, after = (make_conninfo(port=node.port, **at) for node in (server.primary, standby))
    with session_in(before) as session, session_in(after) as replica:
        install(session)
        finish(session)
        assert export(spark, lake, options={"url": url_without_password(before, tmp_path)}).rows == 1
        session.rows("alter system reset synchronous_standby_names")
        session.rows("select pg_reload_conf()")
        mark = session.one("select pg_current_wal_lsn()")
        wait_until(lambda: replica.one(f"select pg_last_wal_replay_lsn() >= '{mark}'"), "the replica has it", 60)
        replica.rows("alter system set primary_conninfo = ''")
        replica.rows("select pg_reload_conf()")
        wait_until(lambda: not session.rows("select from pg_stat_replication"), "it follows no more", 60)
        for _ in range(5):
            finish(session)
        assert export(spark, lake, options={"url": url_without_password(before, tmp_path)}).rows == 5
    server.fail_over(standby)
    options = {"url": url_without_password(after, tmp_path)}
    with session_in(after) as session:
        with pytest.raises(HistoryReplaced, match="is at"):
            export(spark, lake, options=options)
        for _ in range(20):
            finish(session)
        for use in (export, adopt):
            with pytest.raises(SparkQueueError, match="without the last transactions") as refused:
                use(spark, lake, options=options)
        [condition] = re.findall(r"--where '(.+)', then qpipeline export --adopt", str(refused.value))
        assert erase(Lake.open(spark, lake), condition) == 5
        assert adopt(spark, lake, options=options).same == 1
        assert export(spark, lake, options=options).rows == 20
        assert ids(spark, lake) == [attempt.id for attempt in session.history()]


@pytest.mark.django_db(transaction=True)
@pytest.mark.slow
def test_a_server_that_crashes_has_the_transactions_that_a_lake_has_passed(
    spark: SparkSession, server: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also by an export without rows, and where the record of its position does not write them to the disk."""
    monkeypatch.setattr(KnownPosition, "_move", lambda *_args, **_words: Missed())
    address = make_conninfo(
        host="127.0.0.1", port=server.primary.port, user="pgqueue", password=server.password, dbname="storm"
    )
    options = {"url": url_without_password(address, tmp_path)}
    with session_in(address) as session:
        session.rows("alter system set wal_writer_delay = '10s'")
        session.rows("alter system set autovacuum = off")
        session.rows("select pg_reload_conf()")
        install(session)
        finish(session)
        export(spark, tmp_path / "lake", options=options)
        session.rows("set synchronous_commit = off")
        for _ in range(5):
            session.create()
        assert export(spark, tmp_path / "lake", options=options).rows == 0
        server.crash()
    server.heal()
    with server.when_there() as admin:
        finish(Session(admin))
    assert export(spark, tmp_path / "lake", options=options).rows == 1
