"""A real standby: what an export from it waits for, and what it cannot hold back on the primary."""

from __future__ import annotations

import signal
from typing import TYPE_CHECKING

import pytest
from psycopg.conninfo import make_conninfo

from django_pgqueue.spark import database
from django_pgqueue.spark.pipeline import export
from django_pgqueue.spark.pipeline.source_database import Origin
from tests.spark.conftest import finish
from tests.spark.pipeline.conftest import url_without_password
from tests.spark.pipeline.test_export import Said
from tests.support.databases import install, session_in
from tests.support.fixtures.servers import server
from tests.support.waiting import wait_until

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from pyspark.sql import SparkSession

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
