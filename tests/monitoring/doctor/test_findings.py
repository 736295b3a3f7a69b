"""Each finding is found where the real condition is there, and not where it is not."""

from __future__ import annotations

import datetime as dt
import json
import re
import shutil
import socket
import struct
import subprocess
import tempfile
import threading
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

import psycopg
import pytest
from django.core.management import CommandError, call_command
from django.db import connection, connections, transaction
from django.db.backends.base import base
from psycopg import pq
from psycopg.errors import QueryCanceled

from django_pgqueue import functions
from django_pgqueue.checks import check_pins, check_tables, check_version
from django_pgqueue.exceptions import OutdatedQueue
from django_pgqueue.functions import Wait, sql_files
from django_pgqueue.models import Ended, Message
from django_pgqueue.monitoring.doctor import (
    KINDS,
    Severity,
    Subject,
    clocks,
    disks,
    durable,
    examination,
    examine,
    history,
    installation,
    locks,
    platform,
    pooler,
    schedules,
    server,
    snapshots,
    tables,
    workers,
)
from django_pgqueue.monitoring.overview import host, limits
from django_pgqueue.worker.upkeep import bloat
from example_project.development.embedded_postgres.postmaster import free_port
from tests.support.address import conninfo
from tests.support.databases import refusing_connections
from tests.support.fixtures.admin import claim, complete, fail, send, sign_in, sql
from tests.support.pooler import Pooler
from tests.support.waiting import wait_until

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from pytest_django.fixtures import Settings

    from django_pgqueue.monitoring.doctor import Finding
    from django_pgqueue.testing import Clock
    from tests.monitoring.doctor.conftest import Find
    from tests.support.fixtures.consumers import Consume
    from tests.support.fixtures.workers import Session

    Another = Callable[..., psycopg.Connection[Any]]

NOW_GONE = dt.timedelta(seconds=-1)
"""An age that everything has."""
BACKEND = "django_pgqueue.backend.PgQueueBackend"


def only(found: list[Finding]) -> Finding:
    [finding] = found
    return finding


def version() -> int:
    return int(sql("show server_version_num")[0][0])


# Old snapshots


@pytest.mark.parametrize(
    "value",
    [
        "'secret'",
        "E'it\\'s secret'",
        "$$secret$$",
        "98765432",
        "/* it's */ 'secret'",
        "true -- it's\n or relname = 'secret'",
    ],
)
def test_old_transaction(find: Find, another: Another, monkeypatch: pytest.MonkeyPatch, value: str) -> None:
    statement = f"select relname as two2 from pg_class where {value}::text is not null limit 1"
    session = another(application_name="a long report")
    session.execute("begin isolation level repeatable read")
    session.execute(statement)
    pid = session.info.backend_pid
    assert find("old-transaction", snapshots.transactions, pid=pid) == [], "it is young"
    monkeypatch.setattr(snapshots, "OLD", NOW_GONE)
    found = find.only("old-transaction", snapshots.transactions, pid=pid)
    assert found.severity is Severity.WARNING
    assert f"session {pid} (a long report, user " in found.found
    assert "idle in transaction) has been open for" in found.found
    assert "select relname as two2 from pg_class where " in found.found
    assert "secret" not in found.found
    assert "98765432" not in found.found
    assert found.command == f"select pg_terminate_backend({pid});"
    monkeypatch.setattr(snapshots, "VERY_OLD", NOW_GONE)
    assert find.only("old-transaction", snapshots.transactions, pid=pid).severity is Severity.ERROR
    sql(found.command)
    wait_until(lambda: not find("old-transaction", snapshots.transactions, pid=pid), "the command ends it")


def test_a_transaction_of_another_database_is_old_when_it_has_written(
    find: Find, another: Another, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(snapshots, "OLD", NOW_GONE)
    other = another(dbname="postgres", application_name="another shop")
    other.execute("begin isolation level repeatable read")
    other.execute("select 1")
    pid = other.info.backend_pid
    assert find("old-transaction", snapshots.transactions, pid=pid) == []
    other.execute("select pg_current_xact_id()")
    found = find.only("old-transaction", snapshots.transactions, pid=pid)
    assert f"session {pid} of database postgres (another shop, user " in found.found

    # What the finding says: a snapshot that begins now reaches back to that transaction, and vacuum keeps its rows.
    [[oldest]] = other.execute("select pg_current_xact_id()::xid").fetchall()
    young = another()
    young.execute("begin isolation level repeatable read")
    young.execute("select 1 from pg_class limit 1")
    assert sql(f"select backend_xmin from pg_stat_activity where pid = {young.info.backend_pid}") == [(oldest,)]


def test_a_subscribers_copy_of_a_table_is_an_old_transaction(
    find: Find, another: Another, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(snapshots, "OLD", NOW_GONE)
    monkeypatch.setattr(snapshots, "FAR_XIDS", -1)
    copy = another(replication="database")  # begins with a snapshot, as the walsender of a logical replication does
    copy.execute(b"begin isolation level repeatable read")
    copy.execute(b"select 1 from pg_class limit 1")
    find.only("old-transaction", snapshots.transactions, pid=copy.info.backend_pid)
    assert find("standby-feedback", snapshots.standbys) == []


def test_a_vacuum_is_no_old_transaction(find: Find, another: Another, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(snapshots, "OLD", NOW_GONE)
    session = another()
    pid = session.info.backend_pid
    sql("create table slow as select i from generate_series(1, 20000) i")
    session.execute("set vacuum_cost_delay = 100")
    session.execute("set vacuum_cost_limit = 1")
    thread = threading.Thread(target=vacuum, args=(session,))
    thread.start()
    try:
        wait_until(lambda: sql(f"select 1 from pg_stat_progress_vacuum where pid = {pid}"), "it vacuums")
        assert sql(f"select backend_xmin is not null from pg_stat_activity where pid = {pid}") == [(True,)]
        assert find("old-transaction", snapshots.transactions, pid=pid) == []
    finally:
        session.cancel()
        thread.join()
        sql("drop table slow")


def vacuum(session: psycopg.Connection[Any]) -> None:
    with suppress(QueryCanceled):
        session.execute("vacuum slow")


def test_prepared_transaction(find: Find, another: Another, monkeypatch: pytest.MonkeyPatch) -> None:
    if sql("show max_prepared_transactions") == [("0",)]:
        pytest.skip("the server has max_prepared_transactions = 0: there are no prepared transactions")
    monkeypatch.setattr(snapshots, "OLD", NOW_GONE)
    session = another()
    session.execute("begin")
    session.execute("insert into pgqueue_queue (name) values ('half done')")
    session.execute("prepare transaction 'it''s forgotten'")
    found = find.only("prepared-transaction", snapshots.prepared_transactions, gid="it's forgotten")
    assert found.command == "rollback prepared 'it''s forgotten';"
    session.execute(found.command)
    assert find("prepared-transaction", snapshots.prepared_transactions) == []
    other = another(dbname="postgres")
    other.execute("begin")
    other.execute("select pg_current_xact_id()")
    other.execute("prepare transaction 'there'")
    found = find.only("prepared-transaction", snapshots.prepared_transactions, gid="there")
    assert "there of database postgres of user" in found.found
    assert found.command == "rollback prepared 'there';  -- in the database postgres"
    other.execute(found.command)


class Standby:
    """As much of a standby as the server can see: it streams, and says which rows its queries still need."""

    def __init__(self, slot: str = "") -> None:
        address = psycopg.conninfo.make_conninfo(conninfo(), application_name="standby-1")
        self.connection = pq.PGconn.connect(f"{address} replication=true".encode())
        if self.connection.status != pq.ConnStatus.OK:
            pytest.skip(f"the server lets nobody replicate: {self.connection.error_message.decode()}")
        if slot:
            self._run(f"CREATE_REPLICATION_SLOT {slot} TEMPORARY PHYSICAL")
        [[place]] = sql("select pg_current_wal_flush_lsn()::text")  # older logs may have been removed
        started = self.connection.exec_(f"START_REPLICATION {f'SLOT {slot}' if slot else ''} PHYSICAL {place}".encode())
        if started.status != pq.ExecStatus.COPY_BOTH:
            pytest.skip(f"the server does not replicate: {started.error_message.decode()}")

    def _run(self, command: str) -> None:
        answer = self.connection.exec_(command.encode())
        if answer.status not in {pq.ExecStatus.COMMAND_OK, pq.ExecStatus.TUPLES_OK}:
            pytest.skip(f"the server has no room for a slot: {answer.error_message.decode()}")

    def needs(self, xid: int) -> None:
        self.connection.put_copy_data(b"h" + struct.pack("!qIIII", 0, xid, 0, 0, 0))
        self.connection.flush()

    def close(self) -> None:
        self.connection.finish()


@pytest.fixture
def standby(transactional_db: None) -> Iterator[Callable[..., Standby]]:
    opened: list[Standby] = []

    def open_one(slot: str = "") -> Standby:
        opened.append(Standby(slot))
        opened[-1].needs(sql("select pg_current_xact_id()::text::bigint")[0][0])
        return opened[-1]

    yield open_one
    for one in opened:
        one.close()
    wait_until(lambda: not sql("select from pg_stat_replication where application_name = 'standby-1'"), "it is gone")


def test_standby_feedback(find: Find, standby: Callable[..., Standby], monkeypatch: pytest.MonkeyPatch) -> None:
    standby()
    assert find("standby-feedback", snapshots.standbys) == [], "it is near"
    monkeypatch.setattr(snapshots, "FAR_XIDS", 10)
    for _ in range(15):
        sql("select pg_current_xact_id()")
    found = wait_until(lambda: find("standby-feedback", snapshots.standbys), "it is seen")[0]
    assert "The standby standby-1 at " in found.found


def test_replication_slot(find: Find, standby: Callable[..., Standby], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(snapshots, "FAR_XIDS", 10)
    name = "pgqueue_doctor_test"
    standby(name)
    for _ in range(15):
        sql("select pg_current_xact_id()")
    found = wait_until(lambda: find("replication-slot", snapshots.replication_slots, slot=name), "it is seen")[0]
    assert re.search(
        rf"The replication slot {name} \(active\) holds the rows of the last \d+ transactions", found.found
    )


def test_a_replication_slot_that_keeps_the_log(
    find: Find, another: Another, transactional_db: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Such as one of a subscriber that nobody needs any more: in the end the disk is full."""
    name = "pgqueue_doctor_log"
    session = another()
    try:
        session.execute("select pg_create_physical_replication_slot(%s, true)", [name])
    except psycopg.errors.ObjectNotInPrerequisiteState as error:
        pytest.skip(f"the server has no slots: {error}")
    try:
        assert find("replication-slot", snapshots.replication_slots, slot=name) == [], "it is not far behind"
        monkeypatch.setattr(snapshots, "FAR_BYTES", 0)
        found = find.only("replication-slot", snapshots.replication_slots, slot=name)
        assert re.search(rf"{name} \(not in use\) holds [\d.]+ \w+ of the write-ahead log", found.found)
        session.execute(found.command)
    finally:
        session.execute(
            "select pg_drop_replication_slot(s.slot_name) from pg_replication_slots s where s.slot_name = %s", [name]
        )
    assert find("replication-slot", snapshots.replication_slots, slot=name) == []


def test_limited_sight(find: Find, db: None) -> None:
    assert find("limited-sight", snapshots.sight) == []
    sql('create role "pgqueue-test blind"')
    sql('set local role "pgqueue-test blind"')
    assert find.only("limited-sight", snapshots.sight).command == 'grant pg_read_all_stats to "pgqueue-test blind";'


# Tables


def test_unanalysed_table(find: Find, another: Another) -> None:
    name = "pgqueue_report_error"  # no other test analyses it
    another().execute(
        f"insert into {name} (hour, queue, error_class, attempts) select now(), 'q', repeat('x', 99), 1 "
        "from generate_series(1, 10000)"
    )
    found = find.only("unanalysed-table", tables.unanalysed, table=name)
    assert re.search(rf"{name} has \d\.\d MB and has never been analysed", found.found)
    find.cured(found, tables.unanalysed, table=name)
    sql(f"truncate {name}")
    sql(f"vacuum {name}")


@pytest.fixture
def emptied(another: Another, monkeypatch: pytest.MonkeyPatch) -> psycopg.Connection[Any]:
    """A table of many messages, of which the last one is left."""
    monkeypatch.setattr(bloat, "LARGE_BYTES", 200_000)
    monkeypatch.setattr(bloat, "MANY_DEAD", 10_000)
    session = another()
    session.execute(
        "insert into pgqueue_message (dequeue_at, queue, content) select i, 'q', '{}' from generate_series(1, 20000) i"
    )
    session.execute("delete from pgqueue_message where dequeue_at < 20000")
    session.close()  # tells what it counted: an idle session keeps that for a while, on PostgreSQL 14 for ever
    return another()


def test_dead_rows(find: Find, emptied: psycopg.Connection[Any]) -> None:
    found = wait_until(lambda: find("dead-rows", tables.bloated, relation="pgqueue_message"), "the counters are told")[
        0
    ]
    assert re.search(r"pgqueue_message has [\d,]+ dead rows and [\d,]+ live ones, in \d", found.found)
    assert find("bloated-table", tables.bloated, relation="pgqueue_message") == [], "that is another thing"
    emptied.execute(found.command)
    wait_until(lambda: not find("dead-rows", tables.bloated, relation="pgqueue_message"), "the command helps")


def test_bloated_table(find: Find, emptied: psycopg.Connection[Any]) -> None:
    emptied.execute("vacuum (analyze) pgqueue_message")
    found = wait_until(lambda: find("bloated-table", tables.bloated, relation="pgqueue_message"), "it is seen")[0]
    assert re.search(r"pgqueue_message takes \d\.\d MB for \d live rows", found.found)
    emptied.execute(found.command)
    wait_until(lambda: not find("bloated-table", tables.bloated, relation="pgqueue_message"), "the command helps")


def test_bloated_index(find: Find, emptied: psycopg.Connection[Any]) -> None:
    emptied.execute("vacuum (analyze) pgqueue_message")
    name = "pgqueue_message_ready_ix"
    found = wait_until(lambda: find("bloated-index", tables.bloated, relation=name), "it is seen")[0]
    emptied.execute(found.command)
    assert find("bloated-index", tables.bloated, relation=name) == []


def test_unlogged_table(find: Find, db: None) -> None:
    assert find("unlogged-table", tables.unlogged) == []
    sql("alter table pgqueue_message set unlogged")
    find.cured(find.only("unlogged-table", tables.unlogged, table="pgqueue_message"), tables.unlogged)


def test_invalid_index(find: Find, another: Another) -> None:
    send(queue="mail")
    send(queue="mail")
    session = another()
    with pytest.raises(psycopg.errors.UniqueViolation):
        session.execute("create unique index concurrently pgqueue_doctor_test_ix on pgqueue_message (queue)")
    try:
        found = find.only("invalid-index", tables.invalid_indexes)
        assert found.values["index"] == "pgqueue_doctor_test_ix"
        session.execute("delete from pgqueue_message")
        session.execute(found.command)
        assert find("invalid-index", tables.invalid_indexes) == []
    finally:
        session.execute("drop index pgqueue_doctor_test_ix")


def test_sequence_near_end(find: Find, db: None) -> None:
    send()
    [[last]] = sql("select last_value from pgqueue_message_id_seq")
    try:
        sql("select setval('pgqueue_message_id_seq', 8000000000000000000)")
        found = find.only("sequence-near-end", tables.sequences)
        assert "(86.7%)" in found.found
        assert found.severity is Severity.WARNING
        sql("select setval('pgqueue_message_id_seq', 9200000000000000000)")
        assert find.only("sequence-near-end", tables.sequences).severity is Severity.ERROR
        sql(found.command)
        assert find("sequence-near-end", tables.sequences) == []
    finally:  # no rollback does it
        sql("select setval('pgqueue_message_id_seq', %s)", last)


def test_collation_version(find: Find, db: None) -> None:
    """In the place of another library, because the database of the tests sorts by bytes."""
    assert find("collation-version", tables.collation) == []
    if sql("select current_setting('server_version_num')::int < 150000") == [(True,)]:
        return
    sql("create schema another")
    sql("create function another.pg_database_collation_actual_version(oid) returns text language sql return '2.41'")
    sql("set local search_path = another, pg_catalog, public")
    sql("update pg_database set datcollversion = '2.36' where datname = current_database()")
    found = find.only("collation-version", tables.collation)
    assert "version 2.36 of its collation, not 2.41" in found.found
    sql("update pg_database set datcollversion = '2.41' where datname = current_database()")
    assert find("collation-version", tables.collation) == []


def test_sequence_behind(find: Find, db: None) -> None:
    send()
    [[message_id]] = sql("delete from pgqueue_message returning id")
    sql(
        "insert into pgqueue_attempt (message_id, dequeue_at, created_at, finished_at, attempt, priority, final, "
        "status, queue) values (%s, 0, now(), now(), 1, 0, true, 'succeeded', 'default')",
        message_id,
    )
    assert find("sequence-behind", tables.sequences_behind) == []
    sql("create role pgqueue_test_guest")
    sql("grant select on all tables in schema public to pgqueue_test_guest")
    sql("set local role pgqueue_test_guest")
    assert find("sequence-behind", tables.sequences_behind) == [], "who may not see a sequence says nothing about it"
    assert find("sequence-near-end", tables.sequences) == []
    sql("reset role")
    sql("select setval('pgqueue_message_id_seq', 1, false)")
    sql("grant usage on sequence pgqueue_message_id_seq to pgqueue_test_guest")
    sql("revoke select on pgqueue_binding, pgqueue_report_hour from pgqueue_test_guest")
    sql("set local role pgqueue_test_guest")  # a login of workers reads no reports
    found = find.only("sequence-behind", tables.sequences_behind)
    sql("reset role")
    assert found.found == f"pgqueue_message_id_seq is at 0, and the id {message_id:,} is in use."
    sql(found.command)
    assert find("sequence-behind", tables.sequences_behind) == []
    assert sql("select last_value from pgqueue_message_id_seq") == [(message_id + 1000,)]
    sql(
        "insert into pgqueue_edit (id, first_id, last_id, position, action, asked_by) "
        "values (1000000, 1, 1, 0, 'cancel', 'me')"
    )
    found = find.only("sequence-behind", tables.sequences_behind)
    assert "pgqueue_edit_id_seq" in found.found
    sql(found.command)
    assert find("sequence-behind", tables.sequences_behind) == []


def test_wraparound(find: Find, another: Another, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tables, "OLD_XIDS", 100)
    session = another()
    session.execute("vacuum (freeze) pgqueue_ledger")
    assert find("wraparound", tables.wraparound, table="pgqueue_ledger") == []
    monkeypatch.setattr(tables, "OLD_XIDS", 5)
    for _ in range(10):
        session.execute("select pg_current_xact_id()")
    monkeypatch.setattr(tables, "VERY_OLD_XIDS", 1_000_000_000)
    with monkeypatch.context() as all_of_them:
        all_of_them.setattr(tables, "FROZEN", tables.FROZEN.replace("limit 5", ""))
        found = find.only("wraparound", tables.wraparound, table="pgqueue_ledger")
    assert found.command == "vacuum (freeze, verbose) pgqueue_ledger;"


# The history


def partition(days: int) -> str:
    [[name]] = sql(
        "select 'pgqueue_attempt_' || to_char((pgqueue_clock() at time zone 'UTC')::date + %s, 'YYYYMMDD')", days
    )
    return str(name)


def test_missing_partition(find: Find, db: None) -> None:
    assert find("missing-partition", history.partitions) == []
    sql(f"drop table {partition(1)}")
    assert find.only("missing-partition", history.partitions).severity is Severity.WARNING
    sql(f"alter table pgqueue_attempt detach partition {partition(0)}")
    sql(f"drop table {partition(0)}")
    today, _ = find("missing-partition", history.partitions)
    assert "no partition for today, " in today.found
    assert today.severity is Severity.ERROR
    find.cured(today, history.partitions)


def test_default_partition(find: Find, db: None) -> None:
    assert find("default-partition", history.default_partition) == []
    sql(
        "insert into pgqueue_attempt (message_id, dequeue_at, created_at, finished_at, attempt, priority, final, "
        "status, queue) select 1, 0, day, day, 1, 0, true, 'succeeded', 'q' "
        "from unnest(array['2020-02-03', '2020-02-05']::timestamptz[]) day"
    )
    found = find.only("default-partition", history.default_partition)
    assert "has 2 attempts, which ended from 2020-02-03 to 2020-02-05" in found.found
    find.cured(found, history.default_partition)


def test_lake_behind(find: Find, db: None) -> None:
    sql("select pgqueue_lake_move('one', '/data/jobs', 5)")
    assert find("lake-behind", history.lakes) == []
    sql("update pgqueue_lake set exported_at = pgqueue_clock() - interval '2 days'")
    found = find.only("lake-behind", history.lakes)
    assert "The lake /data/jobs was last exported on 20" in found.found
    find.cured(found, history.lakes)


def test_lake_missed(find: Find, db: None) -> None:
    sql("select pgqueue_lake_move('one', '/data/jobs', 5)")
    sql(
        "update pgqueue_lake set missed_attempts = 150, missed_at = pgqueue_clock(), missed_from = '2020-02-03', "
        "missed_until = '2020-02-05'"
    )
    missed = find.only("lake-missed", history.lakes)
    assert "lacks 150 attempts of the days 2020-02-03 to 2020-02-05" in missed.found
    sql("update pgqueue_lake set missed_at = pgqueue_clock() - interval '8 days'")
    assert find("lake-missed", history.lakes) == []


def test_history_that_waits_for_a_lake_is_not_overdue(find: Find, db: None) -> None:
    sql("select pgqueue_attempt_partition((pgqueue_clock() at time zone 'UTC')::date - 35)")
    assert len(find("history-overdue", history.overdue)) == 1
    sql("select pgqueue_lake_move('one', '/data/jobs', 5)")
    assert find("history-overdue", history.overdue) == []


def test_history_overdue(find: Find, db: None, settings: Settings) -> None:
    sql("select pgqueue_attempt_partition((pgqueue_clock() at time zone 'UTC')::date - 31)")
    assert find("history-overdue", history.overdue) == [], "it is about to be dropped"
    sql("select pgqueue_attempt_partition('2020-02-03')")
    found = find.only("history-overdue", history.overdue)
    assert re.search(r"1 day of history \(\d+ kB, from 2020-02-03 on\) are older than HISTORY_DAYS, 30", found.found)
    settings.TASKS = {"default": {"BACKEND": BACKEND, "OPTIONS": {"HISTORY_DAYS": None}}}
    assert find("history-overdue", history.overdue) == [], "it is kept for ever"
    sql(found.command)
    settings.TASKS = {"default": {"BACKEND": BACKEND}}
    assert find("history-overdue", history.overdue) == []


# Who works


def test_dead_worker(find: Find, db: None) -> None:
    sign_in("it's dead", hostname="web7", pid=77)
    sign_in("a listener", tasks=False)
    assert find("dead-worker", workers.dead_workers) == []
    sql("update pgqueue_worker set seen_at = seen_at - interval '5 min'")
    found = find.only("dead-worker", workers.dead_workers)
    assert "Worker it's dead (pid 77 on web7) has not renewed its row for 5 min" in found.found
    find.cured(found, workers.dead_workers)


def test_no_worker(find: Find, db: None) -> None:
    sign_in(queues=["mail"])
    send(queue="mail")
    send(queue="a b")
    send(queue="a b", channel="acme")
    send(queue="raw", task=None)
    send(queue="later", delay_ms=3_600_000)
    send(queue="paused")
    functions.queue_pause(connection, "paused", by=None)
    found = find.only("no-worker", workers.idle_queues)
    assert "No worker serves the queue 'a b': 2 are ready, the oldest for " in found.found
    assert found.command == "python manage.py qworker --queues 'a b'"


def test_expired_messages(find: Find, db: None) -> None:
    for queue in ("mail", "paused"):
        send(queue=queue)
        claim(queue)
    functions.queue_pause(connection, "paused", by=None)
    assert find("expired-messages", workers.expired_messages) == [], "somebody may be about to take it over"
    sql("update pgqueue_message set unlock_at = unlock_at - 660000")
    found = find.only("expired-messages", workers.expired_messages)
    assert "1 message of the queue 'mail' lost its worker, the first 10 min ago" in found.found


def test_worker_problem(find: Find, db: None) -> None:
    for worker, problem in (
        ("a", None),
        ("b", "schedules: no rights"),
        ("c", "schedules: no rights"),
        ("d", "claim: x"),
    ):
        sign_in(worker)
        sql("update pgqueue_worker set problem = %s where id = %s", problem, worker)
    first, second = find("worker-problem", workers.worker_problems)
    assert first.found == "Worker b and 1 more cannot do a part of its work: schedules: no rights"
    assert (second.values["worker"], second.values["problem"]) == ("d", "claim: x")
    sql("update pgqueue_worker set seen_at = now() - interval '1 hour'")
    assert find("worker-problem", workers.worker_problems) == [], "that is another finding"


@pytest.mark.slow
def test_worker_problem_of_a_look_that_fails(find: Find, session: Session, consume: Consume) -> None:
    """A real worker reports that its look at messages that wait for others fails."""
    session.rows("alter function pgqueue_message_settle rename to pgqueue_message_settle_away")
    try:
        consume()
        wait_until(lambda: find("worker-problem", workers.worker_problems), "it says so")
        found = find.only("worker-problem", workers.worker_problems)
        assert "dependencies: function pgqueue_message_settle" in found.found
    finally:
        session.rows("alter function pgqueue_message_settle_away rename to pgqueue_message_settle")
    wait_until(lambda: not find("worker-problem", workers.worker_problems), "it is over")


def test_paused_queue(find: Find, db: None) -> None:
    for queue in ("mail", "empty", "fresh", "later"):
        functions.queue_pause(connection, queue, by="ada")
    send(queue="mail")
    send(queue="mail", channel="acme")
    send(queue="fresh")
    send(queue="later", delay_ms=3_600_000)
    assert find("paused-queue", workers.idle_queues) == [], "a day is not over"
    sql("update pgqueue_queue set paused_at = paused_at - interval '30 hours' where name <> 'fresh'")
    found = find.only("paused-queue", workers.idle_queues)
    assert found.found == "The queue 'mail' was paused 1 d ago by ada, and 2 are ready in it."
    find.cured(found, workers.idle_queues)


def test_long_held(find: Find, db: None) -> None:
    for number in range(3):
        send(task="shop.tasks.slow" if number < 2 else None)
    held = claim(limit=3), claim(tasks=False)
    first = held[0][0].id
    assert find("long-held", workers.long_held) == []
    sql("update pgqueue_message set locked_at = locked_at - interval '7 hours'")
    sql("update pgqueue_message set locked_at = locked_at - interval '1 hour' where id = %s", first)
    tasks, raw = find("long-held", workers.long_held)
    assert "2 jobs of shop.tasks.slow have been running for more than 6 h, " in tasks.found
    assert f"{first} in worker " in tasks.found
    assert raw.found.startswith("1 raw message has been running")
    sql(tasks.command)
    assert sql("select id from pgqueue_message where cancel_requested_at is not null") == [(first,)]
    sql("update pgqueue_message set unlock_at = 0")
    assert find("long-held", workers.long_held) == [], "nobody holds it any more"


def test_overdue_look(find: Find, db: None) -> None:
    first = send()
    sql("select pgqueue_message_create_after(array[%s], '1')", first)
    assert find("overdue-look", workers.overdue_looks) == []
    sql("update pgqueue_message set check_at = check_at - 600000 where check_at is not null")
    found = find.only("overdue-look", workers.overdue_looks)
    assert "1 check is due of messages that wait for others, the first for 10 min" in found.found
    find.cured(found, workers.overdue_looks)
    sql("insert into pgqueue_ended (message_id, look_at) values (%s, pgqueue_now() - 300000)", first)
    assert len(find("overdue-look", workers.overdue_looks)) == 1


# Schedules


def fired(name: str, number: int, *, ends: Callable[[Any], None]) -> None:
    sql(
        "insert into pgqueue_schedule (name, task, next_at, interval_ms) values (%s, 'shop.tasks.report', 0, 1000) "
        "on conflict do nothing",
        name,
    )
    for _ in range(number):
        [[at]] = sql("select next_at from pgqueue_schedule where name = %s", name)
        sql("select pgqueue_schedule_fire(%s, array[%s::bigint], %s, %s)", name, at, at, at + 1000)
        [message] = claim()
        ends(message)


def test_failing_schedule(find: Find, db: None) -> None:
    fired("bad", 2, ends=lambda message: fail(message, ValueError("secret")))
    fired("good", 4, ends=complete)
    assert find("failing-schedule", schedules.failing) == [], "twice may be bad luck"
    fired("bad", 1, ends=lambda message: fail(message, KeyError("secret")))
    found = find.only("failing-schedule", schedules.failing)
    assert found.found == (
        "The last 3 jobs of the schedule 'bad' (shop.tasks.report) that ended have failed, the last one with "
        "builtins.KeyError."
    )
    assert sql(found.command)[0][2:] == ("builtins.KeyError", "'secret'")
    fired("bad", 1, ends=complete)
    assert find("failing-schedule", schedules.failing) == [], "it works again"
    fired("bad", 3, ends=fail)
    sql("update pgqueue_schedule set paused_at = now() where name = 'bad'")
    assert find("failing-schedule", schedules.failing) == [], "somebody knows"


def test_late_schedule(find: Find, db: None) -> None:
    add = (
        "insert into pgqueue_schedule (name, task, next_at, {0}) "
        "values (%s, 'a.b', pgqueue_now() + 3600000 * %s::bigint, %s)"
    )
    sql(add.format("cron"), "yearly", 24 * 500, "0 0 1 1 *")
    sql(add.format("cron"), "monthly", 0, "0 0 1 * *")
    sql(add.format("cron"), "paused", 24 * 500, "0 0 1 * *")
    sql("update pgqueue_schedule set paused_at = now() where name = 'paused'")
    sql(add.format("cron"), "wrong", 24 * 500, "0 0 31 2 *")
    sql(add.format("interval_ms"), "soon right", 1, 60_000)
    sql(add.format("interval_ms"), "it's late", 24, 3_600_000)
    assert find("late-schedule", schedules.late) == [], "somebody may have chosen their begin"
    sql("insert into pgqueue_schedule_slot (name, slot_at) select name, 1 from pgqueue_schedule")
    found = find.only("late-schedule", schedules.late, schedule="it's late")
    assert found.values["late_seconds"] == pytest.approx(23.5 * 3600, abs=1801)
    find.cured(found, schedules.late, schedule="it's late")
    found = find.only("late-schedule", schedules.late)
    assert found.found.startswith("The schedule 'yearly' (At 00:00 on January 1 (UTC)) is due at")
    sql("update pgqueue_schedule set next_at = 9223372036854775807 where name = 'yearly'")
    find.cured(find.only("late-schedule", schedules.late), schedules.late)


def test_schedule_versions(find: Find, db: None) -> None:
    for worker, interval in (("old", 1000), ("new-1", 2000), ("new-2", 2000), ("gone", 3000)):
        if worker != "gone":
            sign_in(worker)
        declared = "select pgqueue_schedule_declare('s', 't.t', 9, p_interval_ms => %s, p_worker => %s)"
        sql(declared, interval, worker)
        sql("select pgqueue_schedule_declare('same', 't.t', 9, p_interval_ms => 5, p_worker => %s)", worker)
    found = find.only("schedule-versions", schedules.versions)
    assert found.found == ("Workers that are alive declare the schedule 's' differently: 2 as new-1, 1 as old.")


def test_poison_job(find: Find, db: None) -> None:
    poison, innocent = send(task="shop.tasks.crash"), send(task="shop.tasks.crash")
    for times in range(3):
        assert find("poison-job", workers.poison_jobs) == [], f"{times} losses may be anybody's doing"
        sql("update pgqueue_message set alone_at = null, dequeue_at = 0")  # as if it could be taken with others
        held = {message.id: message for message in claim(limit=2)}
        for message in [held[poison], *([held[innocent]] if times == 0 else [])]:
            functions.worker_died(
                connection, message.worker, ids=[message.id], attempts=[message.attempt], running=[True]
            )
        if times == 0:
            sql("delete from pgqueue_message where id = %s", innocent)
    found = find.only("poison-job", workers.poison_jobs)
    assert "while they ran the task shop.tasks.crash: up to 3 times for one job, 1 job in the last day" in found.found
    assert found.values["newest"] == poison
    sql("update pgqueue_message set worker = 'w', locked_at = now(), unlock_at = pgqueue_now() + 60000")
    sql(found.command)
    assert Message.objects.get().cancel_requested_at is not None
    sql("update pgqueue_message set worker = null, locked_at = null, unlock_at = null, cancel_requested_at = null")
    sql(found.command)
    assert Message.objects.count() == 0


def test_unknown_task(find: Find, db: None) -> None:
    send(task="example_project.shop.tasks.send_receipt")
    assert find("unknown-task", workers.unknown_tasks) == []
    send(task="example_project.shop.tasks.gone", queue="mail")
    sql("insert into pgqueue_schedule (name, next_at, task, interval_ms) values ('it''s old', 0, 'shop.gone', 1000)")
    message, schedule = find("unknown-task", workers.unknown_tasks)
    assert "has no 'gone'" in message.found
    assert message.values["messages"] == 1
    assert 'The schedule "it\'s old" enqueues a task that does not exist' in schedule.found
    for found in (message, schedule):
        sql(found.command)
    assert find("unknown-task", workers.unknown_tasks) == []


def test_parked_messages(find: Find, db: None) -> None:
    assert find("parked-messages", workers.parked_messages) == []
    send(task="shop.tasks.new")
    [held] = claim()
    functions.message_park(connection, [(held, "no such task")], worker=held.worker)
    found = find.only("parked-messages", workers.parked_messages)
    assert "1 of shop.tasks.new in the queue default waits for a worker that knows the task" in found.found
    assert "no such task" in found.found
    assert found.values["messages"] == 1
    find.cured(found, workers.parked_messages)


def test_awaited_event(find: Find, pgqueue_clock: Clock) -> None:
    def wait(event: str, delay_ms: int | None = None) -> None:
        send(task="t")
        [held] = claim()
        wait = Wait(name=event, kind="event", event=event, delay_ms=delay_ms)
        functions.message_suspend(connection, held, wait if event else Wait(name="ok", kind="approval"))

    for event in ("paid:7", "paid:8", "sent:1", ""):
        wait(event)
    wait("late:1", delay_ms=3_000_000_000)
    functions.event_emit(connection, "sent:0", "{}")
    pgqueue_clock.advance(dt.timedelta(hours=23))
    assert find("awaited-event", durable.awaited_events) == []
    pgqueue_clock.advance(dt.timedelta(hours=2))
    found = find.only("awaited-event", durable.awaited_events)
    assert "2 jobs wait without a time-out for the event 'paid' or 'paid:…'" in found.found
    assert found.values["wait_seconds"] == 25 * 3600
    assert len(sql(found.command)) == 5
    functions.event_emit(connection, "paid:7", "{}")
    assert find("awaited-event", durable.awaited_events) == []


def test_missed_event(find: Find, pgqueue_clock: Clock) -> None:
    send(task="t")
    [held] = claim()
    functions.message_suspend(connection, held, Wait(name="paid:7", kind="event", event="paid:7"))
    pgqueue_clock.advance(dt.timedelta(hours=1))
    functions.event_emit(connection, "paid:7", "{}")
    assert find("missed-event", durable.missed_events) == [], "a worker is told"
    Ended.objects.all().delete()
    found = find.only("missed-event", durable.missed_events)
    assert f"1 job waits for an event that has been emitted. The first, {held.id}: It waits since" in found.found
    assert "for the event “paid:7”, emitted at" in found.found
    assert "which has not woken it. Run it now: then it looks for the event again." in found.found
    assert len(sql(found.command)) == 1
    functions.message_reschedule(connection, [held.id])
    assert find("missed-event", durable.missed_events) == []


def test_unasked_step(find: Find, db: None) -> None:
    assert find("unasked-step", durable.unasked_steps) == []
    send(task="t")
    [held] = claim()
    functions.step_record(connection, held, "charge", status="unasked")
    found = find.only("unasked-step", durable.unasked_steps)
    assert "1 step was done by an attempt, and not asked for by a later one" in found.found
    assert f"in the last 7 days: 'charge' of message {held.id}." in found.found
    assert len(sql(found.command)) == 1


def test_a_misspelled_task_is_found_beside_many_old_ones(find: Find, db: None) -> None:
    sql(
        "insert into pgqueue_message (queue, task, content, dequeue_at, in_line, parked_at, unknown_since, version) "
        "select 'default', 'a.old' || n, '{}', 9223372036854775806, false, n, case when n <= 40 then n end, '2' "
        "from generate_series(1, 100) as n"
    )
    send(task="z.typo")
    [held] = claim()
    functions.message_park(connection, [(held, "no such task")], worker=held.worker)
    newest, *_, rest = find("parked-messages", workers.parked_messages)
    assert newest.values["task"] == "z.typo"
    assert rest.found == "31 more tasks wait for a worker that knows them."
    assert len(sql(rest.command)) == 101


def test_channel_count(find: Find, db: None) -> None:
    functions.channel_set(connection, "acme", max_concurrency=5)
    for _ in range(3):
        send(channel="acme")
    held = claim(limit=2)
    functions.message_complete(connection, [functions.Success(held[0].id, 1, None)], worker=held[0].worker)
    assert find("channel-count", workers.miscounted_channels) == [], "what has ended is noted, and counted later"
    sql("alter table pgqueue_message disable trigger pgqueue_message_lane_delete")
    sql("delete from pgqueue_message where id = %s", held[1].id)
    sql("alter table pgqueue_message enable trigger pgqueue_message_lane_delete")
    found = find.only("channel-count", workers.miscounted_channels)
    assert "The channel 'acme' counts 2 running messages, but has 1." in found.found
    find.cured(found, workers.miscounted_channels)


@contextmanager
def no_triggers() -> Iterator[None]:
    sql("set session_replication_role = replica")
    yield
    sql("reset session_replication_role")


def test_messages_of_a_channel_that_no_trigger_noted(find: Find, db: None) -> None:
    with no_triggers():
        waiting = send(channel="acme")
    found = find.only("channel-count", workers.miscounted_channels)
    assert found.found == "The channel 'acme' has messages that no worker knows of."
    assert claim() == []
    find.cured(found, workers.miscounted_channels)
    functions.channel_set(connection, "acme", max_concurrency=1)
    send(channel="acme")
    assert [held.id for held in claim(limit=2)] == [waiting]
    assert find("channel-count", workers.miscounted_channels) == [], "the other waits for the end of the first"


def test_missed_end(find: Find, db: None) -> None:
    first, second = send(), send()
    waiting = [send(after=functions.After((before,))) for before in (first, second)]
    sql("select pgqueue_message_settle()")
    sql("update pgqueue_message set check_at = null where awaited_id is not null")
    assert find("missed-end", workers.missed_ends) == []
    sql("delete from pgqueue_message where id = %s", first)
    assert find("missed-end", workers.missed_ends) == [], "a worker is told"
    with no_triggers():
        sql("delete from pgqueue_message where id = %s", second)
    found = find.only("missed-end", workers.missed_ends)
    assert f"The first, {waiting[1]}, waits for {second}." in found.found
    find.cured(found, workers.missed_ends)
    assert sql("select pgqueue_message_settle()") == [(0,)], "the command has checked them"


# What is installed


def test_a_freshly_migrated_queue_has_no_finding(fixed_clock: object) -> None:
    patient = Subject("default")
    assert [*installation.migrations(patient), *installation.parts(patient)] == []
    assert sql("select from pg_namespace where nspname = 'pgqueue_doctor_copy'") == [], "the copy leaves nothing"


def test_strings_that_were_read_in_another_way_are_no_difference(find: Find, fixed_clock: object) -> None:
    [[name, there]] = sql("""
        select conname, pg_get_constraintdef(oid) from pg_constraint where conname = 'pgqueue_queue_name_short'
    """)
    for read in ("on", "off"):
        sql(f"set local standard_conforming_strings = {read}")
        sql(f"alter table pgqueue_queue drop constraint {name}, add constraint {name} {there}")
        for now in ("on", "off"):
            sql(f"set local standard_conforming_strings = {now}")
            assert find("changed-table", installation.parts) == []
    [[changed]] = sql("select pg_get_constraintdef(oid) from pg_constraint where conname = %s", name)
    assert "\x1f" in changed


def test_a_clock_that_any_session_can_set_is_found(find: Find, db: None) -> None:
    found = {finding.command for finding in find("changed-function", installation.parts)}
    assert found == {"psql -f sql/clock/pgqueue_clock.sql", "psql -f sql/clock/pgqueue_now.sql"}


@pytest.mark.parametrize("name", ["queue", "m", '"The %Queue, ""x"""'])
def test_the_name_of_the_schema_is_no_difference(fixed_clock: object, name: str) -> None:
    """Comments end in "the queue.", and m is short for a message."""
    sql(f"alter schema public rename to {name.replace('%', '%%')}")
    sql(f"set local search_path = {name.replace('%', '%%')}")
    with connection.cursor() as cursor:
        cursor.execute(sql_files.current("repin"))
    assert [*installation.parts(Subject("default")), *installation.pins(Subject("default"))] == []


def test_strayed_functions(find: Find, db: None) -> None:
    assert find("strayed-functions", installation.pins) == []
    sql("alter schema public rename to shop; set local search_path = shop")
    found = find.only("strayed-functions", installation.pins)
    assert "functions of the queue in the schema shop search" in found.found
    assert found.command == "psql -f sql/repin.sql"
    [error] = check_pins(databases=["default"])
    assert (error.id, found.found in error.msg) == ("pgqueue.E010", True)
    with connection.cursor() as cursor:
        cursor.execute(sql_files.current("repin"))
    assert find("strayed-functions", installation.pins) == []
    assert check_pins(databases=["default"]) == []


def test_tables_that_were_moved_without_their_functions_are_not_an_earlier_release(find: Find, db: None) -> None:
    sql("create schema shop; alter table pgqueue_message set schema shop; set local search_path = public, shop")
    found = find.only("strayed-functions", installation.pins)
    assert found.found == "The tables of the queue are in the schema shop, and its functions in public."
    assert find("outdated-queue", installation.release) == []
    assert check_version(databases=["default"]) == []


def test_unapplied_migration(find: Find, db: None) -> None:
    sql("delete from django_migrations where app = 'django_pgqueue'")
    found = find.only("unapplied-migration", installation.migrations)
    assert "lacks the migrations 0001_initial" in found.found
    assert found.command == "python manage.py migrate django_pgqueue --database default"


def test_outdated_queue(find: Find, db: None) -> None:
    assert find("outdated-queue", installation.release) == []
    sql("drop function pgqueue_version()")
    found = find.only("outdated-queue", installation.release)
    assert f"has the queue of {sql_files.FIRST}; this code has that of {functions.needed()}." in found.found
    assert found.command == "psql -f sql/upgrade.sql", "migrate would do nothing: its migrations are recorded"
    sql("delete from django_migrations where app = 'django_pgqueue' and name > '0002'")
    found = find.only("outdated-queue", installation.release)
    assert found.command == "python manage.py migrate django_pgqueue --database default"


def test_newer_queue(find: Find, db: None) -> None:
    sql("drop table pgqueue_ledger")
    assert find("missing-table", installation.parts) != []
    assert find("newer-queue", installation.release) == []
    sql(sql_files.current("pgqueue_version").replace(functions.needed(), "99.0.0"))
    assert "has the queue of 99.0.0" in find.only("newer-queue", installation.release).found
    assert find("missing-table", installation.parts) == []


def test_missing_table(find: Find, db: None) -> None:
    sql("drop table pgqueue_ledger, pgqueue_arrival, pgqueue_staged")
    assert [finding.command for finding in find("missing-table", installation.parts)] == [
        "psql -f sql/tables/pgqueue_channel.sql",
        "psql -f sql/tables/pgqueue_ledger.sql",
        "psql -f sql/tables/pgqueue_ledger.sql",
    ]


def test_a_database_without_a_queue_is_the_only_finding(db: None) -> None:
    sql("alter table pgqueue_message rename to elsewhere")
    found = {finding.name: finding for finding in examine(Subject("default"))}
    assert found["missing-table"].command == "python manage.py migrate --database default"
    assert not {"could-not-look", "missing-index"} & set(found)


def test_changed_table(find: Find, db: None) -> None:
    sql("alter table pgqueue_message alter attempt drop not null")
    sql("alter table pgqueue_worker drop column slots")
    sql("alter table pgqueue_message drop constraint pgqueue_message_lock_whole")
    sql("alter table pgqueue_message add column of_ours integer")
    column, missing, constraint = find("changed-table", installation.parts)
    assert "pgqueue_message: the column attempt should be 'integer not null default 0', and is" in column.found
    assert "pgqueue_worker: the column slots should be 'integer not null', and is missing" in missing.found
    assert "the constraint pgqueue_message_lock_whole" in constraint.found


def test_missing_function(find: Find, db: None) -> None:
    sql("drop function pgqueue_queue_pause(text, text)")
    found = find.only("missing-function", installation.parts)
    assert found.found == "There is no function pgqueue_queue_pause(text,text)."
    assert found.command == "psql -f sql/queue/pgqueue_queue_pause.sql"


def test_changed_function(find: Find, fixed_clock: object) -> None:
    changed = {
        "pgqueue_worker_wake": "stable",
        "pgqueue_queue_resume": "reset search_path",
        "pgqueue_queue_pause": "set jit = on",
    }
    for name, change in {**changed, "pgqueue_worker_gone": "volatile"}.items():  # as the last one is
        [[signature]] = sql(f"select '{name}'::regproc::oid::regprocedure::text")
        sql(f"alter function {signature} {change}")
    found = find("changed-function", installation.parts)
    assert {str(each.values["function"]).partition("(")[0] for each in found} == set(changed), (
        "the last one is as it was"
    )


def test_a_changed_function_is_reported_with_its_line(find: Find, fixed_clock: object) -> None:
    [[text]] = sql("select pg_get_functiondef('pgqueue_worker_wake'::regproc)")
    sql(text.replace("order by w.id limit 100", "order by w.id limit 99").replace("%", "%%"))
    found = find.only("changed-function", installation.parts)
    assert "'order by w.id limit 99' instead of 'order by w.id limit 100'" in found.found
    assert found.command == "psql -f sql/worker/pgqueue_worker_wake.sql"


def test_unknown_function(find: Find, db: None) -> None:
    sql("create function pgqueue_of_ours() returns integer language sql as 'select 1'")
    assert find.only("unknown-function", installation.parts).values["function"] == "pgqueue_of_ours()"


def test_missing_index(find: Find, db: None) -> None:
    sql("drop index pgqueue_message_locked_ix")
    sql("drop index pgqueue_lane_next_ix")
    sql("create index pgqueue_lane_next_ix on pgqueue_lane (queue)")
    wrong, missing = find("missing-index", installation.parts)
    assert "is not the index pgqueue_lane_next_ix" in wrong.found
    assert missing.found == "There is no index pgqueue_message_locked_ix."
    sql(missing.command)
    assert find("missing-index", installation.parts) == [wrong]


def test_missing_trigger(find: Find, db: None) -> None:
    sql("alter table pgqueue_message disable trigger pgqueue_message_lane_insert")
    sql("drop trigger pgqueue_message_lane_delete on pgqueue_message")
    missing, off = find("missing-trigger", installation.parts)
    assert off.found == "The trigger pgqueue_message_lane_insert is disabled."
    assert missing.found == "The trigger pgqueue_message_lane_delete is missing."
    for found in (missing, off):
        sql(found.command)
    assert find("missing-trigger", installation.parts) == []


# The server


@pytest.mark.parametrize(
    ("kind", "setting"),
    [
        ("fsync-off", "fsync"),
        ("full-page-writes-off", "full_page_writes"),
        ("autovacuum-off", "autovacuum"),
    ],
)
def test_settings_of_the_server(find: Find, db: None, kind: str, setting: str) -> None:
    if sql(f"show {setting}") != [("off",)]:
        pytest.skip(f"the server has {setting} on, and it cannot be switched off for a test")
    assert f"alter system set {setting} = on;" in find.only(kind, server.settings).command


def test_autovacuum_that_is_off_for_a_table(find: Find, db: None) -> None:
    sql("alter table pgqueue_message set (autovacuum_enabled = off)")
    found = find.only("autovacuum-off", server.settings, table="pgqueue_message")
    find.cured(found, server.settings, table="pgqueue_message")


@pytest.fixture
def beginning_with(transactional_db: None) -> Iterator[Callable[[str, str], None]]:
    """Changes a setting for the next sessions in this database."""
    name = connection.ops.quote_name(connection.settings_dict["NAME"])

    def begin(setting: str, value: str) -> None:
        sql(f"alter database {name} set {setting} = {value}")
        connection.close()

    yield begin
    sql(f"alter database {name} reset all")
    connection.close()


@pytest.mark.parametrize(
    ("kind", "setting", "values"),
    [
        ("track-counts-off", "track_counts", ("on", "off")),
        ("synchronous-commit-off", "synchronous_commit", ("on", "off")),
        ("statement-timeout", "statement_timeout", ("0", "'5s'")),
        ("transaction-timeout", "transaction_timeout", ("0", "'50s'")),
        ("idle-transactions", "idle_in_transaction_session_timeout", ("'5min'", "0")),
        ("triggers-off", "session_replication_role", ("origin", "replica")),
        ("array-nulls-off", "array_nulls", ("on", "off")),
    ],
)
def test_settings_of_the_database(
    find: Find, beginning_with: Callable[[str, str], None], kind: str, setting: str, values: tuple[str, str]
) -> None:
    if setting == "transaction_timeout" and version() < 170000:
        pytest.skip("PostgreSQL has it from 17 on")
    good, bad = values
    beginning_with(setting, good)
    assert find(kind, server.settings) == []
    beginning_with(setting, bad)
    assert setting in find.only(kind, server.settings).found


@pytest.mark.parametrize(
    ("kind", "setting", "value"),
    [("statement-timeout", "statement_timeout", "'5s'"), ("array-nulls-off", "array_nulls", "off")],
)
def test_the_command_names_a_role_with_a_strange_name(
    find: Find, beginning_with: Callable[[str, str], None], kind: str, setting: str, value: str
) -> None:
    beginning_with(setting, value)
    with transaction.atomic():
        sql('create role "pgqueue test-guest"')
        sql('set local role "pgqueue test-guest"')
        sql(find.only(kind, server.settings).command)
        transaction.set_rollback(True)


def test_a_timeout_that_the_settings_send_is_not_blamed_on_the_role(
    find: Find, beginning_with: Callable[[str, str], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    beginning_with("statement_timeout", "0")
    options = connection.settings_dict["OPTIONS"]
    monkeypatch.setitem(options, "options", f"{options.get('options', '')} -c statement_timeout=5s")
    finding = find.only("statement-timeout", server.settings)
    assert "by the options of the connection" in finding.found
    assert finding.command == ""
    assert "DATABASES" in finding.remedy


def test_a_server_that_does_not_note_what_sessions_do_limits_the_sight(
    find: Find, beginning_with: Callable[[str, str], None]
) -> None:
    beginning_with("track_activities", "on")
    assert find("limited-sight", snapshots.sight) == []
    beginning_with("track_activities", "off")
    assert "track_activities is off" in find.only("limited-sight", snapshots.sight).found


def test_the_tablespace_of_a_role_is_none_of_what_is_compared(
    find: Find, beginning_with: Callable[[str, str], None]
) -> None:
    """PostgreSQL makes no partitioned table in the database's own one if that is named."""
    beginning_with("default_tablespace", "pg_default")
    assert find("changed-table", installation.parts) == []


@pytest.mark.parametrize(("free", "is_compared"), [(10 * 2**20, False), (10 * 2**30, True)])
def test_a_disk_without_room_gets_no_copy_of_the_queue(
    db: None, monkeypatch: pytest.MonkeyPatch, *, free: int, is_compared: bool
) -> None:
    """What the copy writes might be what stops the server."""
    monkeypatch.setattr(host, "filling_disks", lambda *, using: [host.Disk("/data", free, 2**40)])  # noqa: ARG005
    looked = examination.looked
    seen: set[str] = set()

    def noted(check: examination.Check, patient: Subject) -> list[Finding]:
        seen.add(check.title)
        return [] if check.writes else looked(check, patient)

    monkeypatch.setattr(examination, "looked", noted)
    assert "full-disk" in {finding.name for finding in examine(Subject("default"))}
    assert ("tables, functions, indexes and triggers" in seen) is is_compared


def test_full_disk(find: Find, db: None, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(host, "FILLING", 0.0)
    monkeypatch.setattr(disks, "NEARLY_FULL", 2.0)
    found = find("full-disk", disks.full)
    if not found:
        pytest.skip("the server is not on this host, or its data directory is not to be seen")
    [[place]] = sql("show data_directory")
    assert found[0].values["place"] == place
    assert re.search(r"is \d+% full: [\d,.]+ \w+ of [\d,.]+ \w+ are free", found[0].found)
    monkeypatch.setattr(disks, "NEARLY_FULL", 0.0)
    assert find("full-disk", disks.full)[0].severity is Severity.ERROR
    monkeypatch.setattr(host, "PROCESSES", tmp_path)
    assert find("full-disk", disks.full) == [], "nothing is said of the disk of another host"
    elsewhere = tmp_path / str(sql("select pg_backend_pid()")[0][0])
    elsewhere.mkdir()
    (elsewhere / "cmdline").write_text("postgres: somebody another_database 127.0.0.1(1) idle")
    assert find("full-disk", disks.full) == [], "another server's process has the same number here"


def test_few_connections(find: Find, db: None, monkeypatch: pytest.MonkeyPatch) -> None:
    sign_in(slots=8)
    assert find("few-connections", server.connections) == []
    with monkeypatch.context() as busy:
        busy.setattr(server, "USED", 0.0)
        assert re.search(
            r"\d+ of \d+ connections of the server are used", find.only("few-connections", server.connections).found
        )
    sign_in("large", slots=100_000)
    found = find.only("few-connections", server.connections)
    assert "The workers that are alive may open 100014 connections, and the server has " in found.found
    assert found.severity is Severity.ERROR


def test_few_connections_of_a_role_and_of_the_database(find: Find, db: None) -> None:
    sign_in(slots=8)
    [[name]] = sql("select current_database()")
    sql('create role "pgqueue test-guest" connection limit 3; grant all on pgqueue_worker to "pgqueue test-guest"')
    sql(f"alter database {name} connection limit 4")
    assert find("few-connections", server.connections) == [], "a superuser has those of the server"
    sql('set local session authorization "pgqueue test-guest"')
    database, role = find("few-connections", server.connections)
    assert f"and the database {name} has 4, which is too few if they use it" in database.found
    assert "may open 11 connections, and the role pgqueue test-guest has 3, which is too few if" in role.found
    assert role.severity is Severity.WARNING, "the workers may have another one"
    sql("set local session authorization default")
    for finding in (database, role):
        sql(finding.command)
    sql('set local session authorization "pgqueue test-guest"')
    assert find("few-connections", server.connections) == [], "the commands end it"


def test_notification_queue(find: Find, another: Another, monkeypatch: pytest.MonkeyPatch) -> None:
    listener, speaker = another(application_name="deaf"), another()
    listener.execute("listen doctor_test")
    listener.execute("begin")
    listener.execute("select 1")
    assert find("notification-queue", server.notification_queue) == []
    speaker.execute("select pg_notify('doctor_test', i || repeat('x', 7900)) from generate_series(1, 200) i")
    monkeypatch.setattr(server, "FILLING", 0.00001)
    found = find.only("notification-queue", server.notification_queue)
    assert found.severity is Severity.WARNING
    assert f"session {listener.info.backend_pid} (deaf)" in found.found
    monkeypatch.setattr(server, "NEARLY_FULL", 0.00001)
    assert find.only("notification-queue", server.notification_queue).severity is Severity.ERROR
    listener.execute("commit")
    listener.execute("select 1")
    wait_until(lambda: not find("notification-queue", server.notification_queue), "who listens has heard all")


def test_long_lock(find: Find, another: Another, monkeypatch: pytest.MonkeyPatch) -> None:
    holder, waiter = another(application_name="an alter"), another()
    holder.execute("begin")
    holder.execute("lock table pgqueue_message in access exclusive mode")
    pid = holder.info.backend_pid
    assert find("long-lock", locks.held, pid=pid) == [], "it may be over at once"
    monkeypatch.setattr(locks, "LONG", NOW_GONE)
    found = find.only("long-lock", locks.held, pid=pid)
    assert f"Session {pid} (an alter, user " in found.found
    assert "holds AccessExclusiveLock on pgqueue_message" in found.found
    assert found.severity is Severity.WARNING
    waiting = threading.Thread(target=lambda: waiter.execute("select from pgqueue_message"))
    waiting.start()
    wait_until(lambda: find("long-lock", locks.held, pid=pid)[0].severity is Severity.ERROR, "somebody waits")
    holder.execute("commit")
    waiting.join()
    assert find("long-lock", locks.held, pid=pid) == []


def test_could_not_look(find: Find, another: Another, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(limits.BOUNDS, "statement_timeout", "100ms")
    holder = another()
    holder.execute("begin")
    holder.execute("lock table pgqueue_worker in access exclusive mode")
    found = find.only("could-not-look", workers.dead_workers)
    assert "canceling statement due to statement timeout" in found.found


def test_what_an_event_trigger_lacks_is_no_part_of_the_queue(find: Find) -> None:
    """It writes a log of all changes, without the name of the log's schema."""
    sql("""
        create function pg_temp.note() returns event_trigger language plpgsql
        as $$ begin insert into log_of_changes values (tg_tag); end $$
    """)
    sql("create event trigger note on ddl_command_end execute function pg_temp.note()")
    found = find.only("could-not-look", installation.parts).found
    assert found == 'Could-not-look: relation "log_of_changes" does not exist'


def test_clock_difference(db: None) -> None:
    def seen(off: float) -> list[Finding]:
        return list(
            clocks.difference(Subject("default", now=lambda: dt.datetime.now(dt.UTC) + dt.timedelta(seconds=off)))
        )

    assert seen(0) == []
    assert "is 10 s ahead of that of the server" in only(seen(10.2)).found
    assert "is 10 s behind that of the server" in only(seen(-10.2)).found


# Poolers


@pytest.fixture
def through(transactional_db: None, settings: Settings) -> Iterator[Callable[..., Subject]]:
    """The same database, by another address."""
    settings.TASKS = {"default": {"BACKEND": BACKEND, "OPTIONS": {"DATABASE": "pooled"}}}

    def patient(port: int, **more: Any) -> Subject:
        connections.settings["pooled"] = {**connections.settings["default"], "HOST": "127.0.0.1", "PORT": port, **more}
        return Subject("pooled")

    yield patient
    connections.settings.pop("pooled", None)


def test_transaction_pooler(through: Callable[..., Subject], settings: Settings, db: None) -> None:
    with Pooler(conninfo()) as running:
        patient = through(running.port)
        found = only(list(pooler.mode(patient)))
        assert found.name == "transaction-pooler"
        assert found.values["backends"] == ["default"]
        settings.TASKS = {"default": {"BACKEND": BACKEND, "OPTIONS": {"DATABASE": "pooled", "LISTEN": False}}}
        assert list(pooler.mode(patient)) == [], "it has been thought of"


def test_a_direct_connection_is_no_pooler(find: Find) -> None:
    assert find("transaction-pooler", pooler.mode) == []


def test_the_other_checks_look_where_no_connection_is_left(transactional_db: None) -> None:
    """The doctor has one, and the check of poolers opens two more."""
    connection.ensure_connection()
    with refusing_connections(connection.settings_dict["NAME"]):
        found = [finding for finding in examine(Subject("default")) if finding.name == "could-not-look"]
    assert "Pooler: connection failed" in only(found).found


@pytest.fixture
def public_folder() -> Iterator[Path]:
    """One that every account may enter, which pytest's own are not."""
    with tempfile.TemporaryDirectory() as name:
        Path(name).chmod(0o755)
        yield Path(name)


@contextmanager
def pgbouncer(folder: Path, mode: str) -> Iterator[int]:
    """The port of a PgBouncer in front of the tests' server."""
    program = shutil.which("pgbouncer") or shutil.which("pgbouncer", path="/usr/sbin")
    if program is None:
        pytest.skip("pgbouncer is not installed here (Debian: apt install pgbouncer)")
    its: dict[str, Any] = connection.settings_dict
    port = free_port()
    file = folder / "pgbouncer.ini"
    file.write_text(
        f"[databases]\n* = host={its['HOST']} port={its['PORT']} user={its['USER']} password={its['PASSWORD']}\n"
        f"[pgbouncer]\nlisten_addr = 127.0.0.1\nlisten_port = {port}\nauth_type = any\npool_mode = {mode}\n"
        "unix_socket_dir =\nmin_pool_size = 0\nignore_startup_parameters = extra_float_digits,options\n"
    )
    file.chmod(0o644)
    user = "nobody" if Path("/proc/self").owner() == "root" else None  # it refuses to be root
    with subprocess.Popen([program, "-q", str(file)], user=user, stderr=subprocess.PIPE) as process:
        try:
            wait_until(lambda: connects(port) or process.poll() is not None, "pgbouncer listens")
            assert process.poll() is None, f"pgbouncer ended: {process.stderr and process.stderr.read()!r}"
            yield port
        finally:
            process.terminate()


@pytest.fixture
def by_port(transactional_db: None, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[int], Subject]]:
    """Django's own connection to the same database, by another port."""

    def patient(port: int) -> Subject:
        connection.close()
        monkeypatch.setitem(connection.settings_dict, "PORT", port)
        return Subject("default")

    yield patient
    connection.close()
    monkeypatch.undo()


@pytest.mark.parametrize("mode", ["transaction", "session"])
def test_pgbouncer_is_found_in_transaction_mode_only(
    through: Callable[..., Subject], by_port: Callable[[int], Subject], public_folder: Path, mode: str
) -> None:
    with pgbouncer(public_folder, mode) as port:
        found = [*pooler.mode(through(port)), *platform.transactions(by_port(port))]
    assert [finding.name for finding in found] == (["transaction-pooler"] if mode == "transaction" else [])


# The server itself


def test_statement_pooler(by_port: Callable[[int], Subject], public_folder: Path) -> None:
    with pgbouncer(public_folder, "statement") as port:
        found = only(examine(by_port(port)))
        with pytest.raises(CommandError, match="transaction blocks not allowed in statement pooling mode"):
            call_command("qworker", exit_when_idle=1)
    assert found.name == "statement-pooler", "and nothing else, for each check would fail by it"
    assert "statement pooling" in found.found


def test_old_server(
    transactional_db: None, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert list(platform.product(Subject("default"))) == []
    connection.close()
    with monkeypatch.context() as patched:
        patched.setattr(connection.features, "minimum_database_version", (99,))
        patched.setattr(base, "RAN_DB_VERSION_CHECK", set())  # Django asks once in a process
        found = only(examine(Subject("default")))
        assert found.name == "old-server"
        assert "99" in found.found
        with pytest.raises(SystemExit, match="1"):
            call_command("qdoctor", json=True)
    assert [each["name"] for each in json.loads(capsys.readouterr().out)["findings"]] == ["old-server"]


def test_not_postgresql(find: Find, db: None) -> None:
    assert find("not-postgresql", platform.product) == []
    # No other server is here: this one answers as another.
    sql("create schema another")
    sql("create function another.version() returns text language sql as $$ select 'CockroachDB CCL v26.2.5'::text $$")
    sql("set local search_path = another, pg_catalog, public")
    found = only(examine(Subject("default")))
    assert (found.name, found.values["product"]) == ("not-postgresql", "CockroachDB")
    assert "CockroachDB CCL v26.2.5" in found.found


def test_a_server_with_the_catalogs_of_aurora_dsql_is_not_postgresql(find: Find, db: None) -> None:
    sql("create schema sys")
    sql("create table sys.iam_pg_role_mappings (arn text)")
    assert find.only("not-postgresql", platform.product).values["product"] == "Aurora DSQL"


def test_missing_feature(find: Find, db: None) -> None:
    assert find("missing-feature", platform.product) == []
    sql("revoke execute on function pg_notify(text, text) from public")
    sql("create role pgqueue_test_mute")
    with connection.cursor() as cursor:
        cursor.execute("set local role pgqueue_test_mute")
        assert find.only("missing-feature", platform.features).values["lacked"] == ["the function pg_notify"]
        cursor.execute("reset role")
    sql("drop extension plpgsql cascade")
    assert find.only("missing-feature", platform.product).values["lacked"] == ["the language plpgsql"]


def test_read_only(find: Find, beginning_with: Callable[[str, str], None]) -> None:
    """test_standby.py has the other case."""
    beginning_with("default_transaction_read_only", "off")
    assert find("read-only", platform.writable) == []
    beginning_with("default_transaction_read_only", "on")
    found = find.only("read-only", platform.writable)
    assert not {"could-not-look", "missing-table"} & {finding.name for finding in examine(Subject("default"))}
    sql("set transaction_read_only = off")
    sql("set session characteristics as transaction read write")
    sql(found.command)
    connection.close()
    assert find("read-only", platform.writable) == [], "the command ends it"


def test_a_role_that_can_only_read_in_one_database(find: Find, transactional_db: None) -> None:
    name = connection.ops.quote_name(connection.settings_dict["NAME"])
    sql(f"alter role current_user in database {name} set default_transaction_read_only = on")
    connection.close()
    try:
        found = find.only("read-only", platform.writable)
    finally:
        sql("set session characteristics as transaction read write")
        sql(f"alter role current_user in database {name} reset all")
        connection.close()
    assert re.fullmatch(r'alter role ".+" in database ".+" reset default_transaction_read_only;', found.command)


def test_limited_rights(find: Find, db: None) -> None:
    assert find("limited-rights", platform.rights) == []
    sql("create role pgqueue_test_guest")
    sql("grant select on all tables in schema public to pgqueue_test_guest")
    sql("set local role pgqueue_test_guest")
    found = {finding.values["what"]: finding for finding in find("limited-rights", platform.rights)}
    assert set(found) == {"enqueue", "run jobs"}
    assert found["enqueue"].values["lacked"] == ["insert on pgqueue_message"]
    assert "update on pgqueue_message" in found["run jobs"].found
    assert found["run jobs"].command == 'grant pgqueue_consumer to "pgqueue_test_guest";'
    assert found["run jobs"].severity is Severity.INFO


def test_date_style(db: None) -> None:
    sql("set local datestyle = 'German'")
    [found] = examine(Subject("default"))
    assert (found.name, found.severity) == ("date-style", Severity.ERROR), "and nothing else, for each check would fail"
    assert "DateStyle is German, DMY for the user" in found.found
    sql("set local datestyle = 'ISO, DMY'")
    assert "date-style" not in {finding.name for finding in examine(Subject("default"))}


def test_date_style_of_one_database(find: Find, transactional_db: None) -> None:
    name = connection.ops.quote_name(connection.settings_dict["NAME"])
    sql(f"alter database {name} set datestyle = 'German'")
    connection.close()
    try:
        found = find.only("date-style", platform.dates)
        sql(found.command)
        connection.close()
        assert find("date-style", platform.dates) == [], "the command ends it"
    finally:
        sql(f"alter database {name} reset all")
        connection.close()


@pytest.mark.parametrize(
    ("source", "command"),
    [
        ("database", 'alter database "shop" reset x;'),
        ("database user", 'alter role "ada" in database "shop" reset x;'),
        ("global", "alter role all reset x;"),
        ("configuration file", "alter system reset x;"),
        ("client", "-- the connection sets it: OPTIONS in DATABASES, or a variable such as PGOPTIONS"),
    ],
)
def test_a_setting_is_changed_where_it_comes_from(source: str, command: str) -> None:
    assert platform.change(source, "shop", "ada", "reset x") == command


def test_row_security(find: Find, db: None) -> None:
    sql("create role pgqueue_test_guest")
    sql("grant select on all tables in schema public to pgqueue_test_guest")
    for table in ("pgqueue_message", "pgqueue_attempt"):
        sql(f"alter table {table} enable row level security")
    assert find("row-security", platform.row_security) == [], "it does not hold for a superuser"
    sql("set local role pgqueue_test_guest")
    found = find.only("row-security", platform.row_security)
    assert found.severity is Severity.ERROR
    assert "the user pgqueue_test_guest in pgqueue_attempt, pgqueue_message: it sees nothing" in found.found
    sql("reset role")
    for table in ("pgqueue_message", "pgqueue_attempt"):
        sql(f"create policy all_rows on {table} using (true)")
    sql("set local role pgqueue_test_guest")
    assert find.only("row-security", platform.row_security).severity is Severity.WARNING
    sql("reset role")
    sql(found.command)
    sql("set local role pgqueue_test_guest")
    assert find("row-security", platform.row_security) == [], "the command ends it"


def test_row_security_that_holds_for_the_owner_alone(find: Find, db: None) -> None:
    """His functions, which others call, neither see the rows nor insert one."""
    sql("create role pgqueue_test_owner")
    sql("alter table pgqueue_message owner to pgqueue_test_owner")
    sql("alter table pgqueue_message enable row level security, force row level security")
    assert find("row-security", platform.row_security) == [], "no function runs with his rights"
    sql("alter function pgqueue_edit_step security definer")
    assert find("row-security", platform.row_security) == [], "the owner of the function is a superuser"
    sql("alter function pgqueue_edit_step owner to pgqueue_test_owner")
    assert (
        "the user pgqueue_test_owner in pgqueue_message: it sees nothing"
        in find.only("row-security", platform.row_security).found
    )
    sql("alter role pgqueue_test_owner bypassrls")
    assert find("row-security", platform.row_security) == []


def test_open_functions(find: Find, db: None) -> None:
    """As after a restore without privileges."""
    [[function]] = sql("select 'pgqueue_message_create'::regproc::oid::regprocedure::text")
    assert find("open-functions", platform.open_functions) == [], "it runs with the rights of its caller"
    sql(f"alter function {function} security definer")
    found = find.only("open-functions", platform.open_functions)
    assert (found.severity, found.command) == (Severity.ERROR, "psql -f sql/roles.sql")
    assert found.values["functions"] == [function]
    sql(f"revoke execute on function {function} from public")
    assert find("open-functions", platform.open_functions) == []


def test_a_role_that_may_enqueue_by_the_function_alone_is_not_limited_in_it(find: Find, db: None) -> None:
    sql("create role pgqueue_test_guest")
    [[function]] = sql("select 'pgqueue_message_create'::regproc::oid::regprocedure::text")
    sql(f"alter function {function} security definer")
    sql("set local role pgqueue_test_guest")
    assert find("limited-rights", platform.rights, what="enqueue") == []


def test_a_schema_that_the_role_may_not_use_is_not_mistaken_for_a_missing_queue(db: None) -> None:
    sql("create role pgqueue_test_guest")
    sql("revoke usage on schema public from public")
    sql("set local role pgqueue_test_guest")
    names = {finding.name: finding for finding in examine(Subject("default"))}
    assert "missing-table" not in names
    assert names["limited-rights"].severity is Severity.ERROR
    assert names["limited-rights"].command == 'grant usage on schema "public" to "pgqueue_test_guest";'
    [warning] = check_tables(databases=["default"])
    assert str(warning.hint).endswith(
        "Or grant the user pgqueue_test_guest usage on the schema public, where a queue is."
    )
    with (
        pytest.raises(OutdatedQueue, match="If this login may not use the schema, grant usage on it"),
        functions.explained("default"),
    ):
        functions.now(connection)


def connects(port: int) -> bool:
    try:
        socket.create_connection(("127.0.0.1", port), timeout=1).close()
    except OSError:
        return False
    return True


def test_each_finding_has_a_test_here() -> None:
    text = "".join(Path(__file__).with_name(name).read_text() for name in ("test_findings.py", "test_standby.py"))
    tests = set(re.findall(r"^def test_(\w+)", text, re.MULTILINE))
    given = set(re.findall(r'^        \("([a-z-]+)", "', text, re.MULTILINE))
    assert {name for name in KINDS if name.replace("-", "_") not in tests and name not in given} == set()


def test_owner_rights_with_a_safe_search_path_are_no_finding(find: Find, fixed_clock: object) -> None:
    for path, findings in (("public, pg_temp", 0), ("public", 2)):  # the first one as roles.sql does
        for name in ("pgqueue_message_create_many(jsonb)", "pgqueue_exchange_route(text, text)"):
            sql(f"alter function {name} security definer set search_path = {path}")
        assert len(find("changed-function", installation.parts)) == findings
