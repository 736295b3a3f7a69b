"""What any worker does for all: it waits for nobody, and warns once."""

from __future__ import annotations

import logging
import time
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import psycopg
import pytest

from django_pgqueue.consumer.connection import connect
from django_pgqueue.worker.upkeep import bloat
from django_pgqueue.worker.upkeep.maintenance import AGAIN_SECONDS, EVERY_SECONDS, Maintenance
from tests.support.address import conninfo
from tests.support.waiting import wait_until

if TYPE_CHECKING:
    from collections.abc import Iterator

pytestmark = pytest.mark.django_db(transaction=True)

OLD = "pgqueue_attempt_20200203"


@pytest.fixture
def worker(transactional_db: None) -> Iterator[psycopg.Connection[Any]]:
    with connect("default") as connection:
        connection.execute("select pgqueue_attempt_partition('2020-02-03')")
        yield connection
        connection.execute("reset role")
        connection.execute(f"drop table if exists {OLD}")
        connection.execute("delete from pgqueue_lake")


def is_there(worker: psycopg.Connection[Any]) -> bool:
    [found] = worker.execute("select to_regclass(%s) is not null", [OLD])
    return bool(found[0])


def seconds_left(maintenance: Maintenance) -> float:
    return maintenance.next_at - time.monotonic()


@contextmanager
def holding(statement: str) -> Iterator[None]:
    """Somebody who has done something, and does not end the transaction."""
    with psycopg.connect(conninfo()) as other:
        other.execute(statement.encode())
        yield


def test_maintenance_runs_once_an_hour(worker: psycopg.Connection[Any]) -> None:
    maintenance = Maintenance(history_days=30)
    maintenance.do_if_due(worker)
    assert not is_there(worker)
    assert AGAIN_SECONDS < seconds_left(maintenance) <= EVERY_SECONDS
    worker.execute("select pgqueue_attempt_partition('2020-02-03')")
    maintenance.do_if_due(worker)
    assert is_there(worker), "it is not due"


def test_a_partition_that_is_being_read_is_dropped_a_minute_later(worker: psycopg.Connection[Any]) -> None:
    maintenance = Maintenance(history_days=30)
    with holding(f"select from {OLD}"):
        maintenance.do_if_due(worker)
        assert is_there(worker)
        assert seconds_left(maintenance) <= AGAIN_SECONDS
    maintenance.next_at = 0.0
    maintenance.do_if_due(worker)
    assert not is_there(worker)
    assert seconds_left(maintenance) > AGAIN_SECONDS


def test_a_day_that_cannot_be_dropped_keeps_no_new_day_away(worker: psycopg.Connection[Any]) -> None:
    newest = "select max(relname) from pg_class where relkind = 'r' and relname ~ '^pgqueue_attempt_[0-9]+$'"
    [(day,)] = worker.execute(newest)
    worker.execute(f"drop table {day}".encode())
    worker.execute(f"create view report as select * from {OLD}".encode())
    maintenance = Maintenance(history_days=30)
    try:
        maintenance.do_if_due(worker)
    finally:
        worker.execute("drop view report")
    assert worker.execute(newest).fetchone() == (day,)
    problem = maintenance.problems["the history's partitions"]  # a bloated table of other tests is another
    reason = f"view report depends on table {OLD}"
    assert problem.endswith(f"cannot drop table {OLD} because other objects depend on it: {reason}")


def test_a_step_that_fails_for_now_keeps_no_other_away(
    worker: psycopg.Connection[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Such as one that meets a damaged file: what psycopg calls operational may last."""
    damage = "do $$ begin raise exception 'could not read block 7' using errcode = 'io_error'; end $$"
    done: list[object] = []
    maintenance = Maintenance(history_days=30)
    monkeypatch.setattr(maintenance, "_days", lambda connection: connection.execute(damage) and None)
    monkeypatch.setattr(maintenance, "_bloat", done.append)
    maintenance.do_if_due(worker)
    assert done == [worker]
    assert not is_there(worker)
    assert maintenance.problems == {
        "the history's next days": "maintenance of the history's next days is not possible: could not read block 7"
    }
    assert seconds_left(maintenance) <= AGAIN_SECONDS
    with connect("default") as broken:
        worker.execute("select pg_terminate_backend(%s)", [broken.info.backend_pid])
        maintenance.next_at = 0.0
        with pytest.raises(psycopg.errors.AdminShutdown):
            maintenance.do_if_due(broken)
    assert done == [worker]


def test_a_step_that_was_cancelled_is_tried_a_minute_later_and_then_each_hour(
    worker: psycopg.Connection[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Somebody may have cancelled it, or a time-out of the role does so each time."""
    maintenance = Maintenance(history_days=30)
    cancelled = "do $$ begin raise exception 'cancelled' using errcode = 'query_canceled'; end $$"
    monkeypatch.setattr(maintenance, "_days", lambda connection: connection.execute(cancelled) and None)
    maintenance.do_if_due(worker)
    assert "cancelled" in maintenance.problems["the history's next days"]
    assert seconds_left(maintenance) <= AGAIN_SECONDS
    maintenance.next_at = 0.0
    maintenance.do_if_due(worker)
    assert seconds_left(maintenance) > AGAIN_SECONDS


def test_a_locked_table_does_not_block_the_worker(
    worker: psycopg.Connection[Any], caplog: pytest.LogCaptureFixture
) -> None:
    worker.execute("set statement_timeout = '10s'")
    maintenance = Maintenance(history_days=None)
    with holding("lock table pgqueue_message, pgqueue_schedule_slot, pgqueue_channel in access exclusive mode"):
        maintenance.do_if_due(worker)
    assert seconds_left(maintenance) <= AGAIN_SECONDS
    assert caplog.records == [], "that is nothing to be told"


def test_a_worker_without_rights_logs_it_once_and_goes_on(
    worker: psycopg.Connection[Any], caplog: pytest.LogCaptureFixture
) -> None:
    worker.execute("drop role if exists pgqueue_test_worker")
    worker.execute("create role pgqueue_test_worker")
    worker.execute("grant select, insert on pgqueue_attempt to pgqueue_test_worker")
    worker.execute("set role pgqueue_test_worker")
    maintenance = Maintenance(history_days=30)
    for _ in range(2):
        maintenance.next_at = 0.0
        maintenance.do_if_due(worker)
    said = [record.getMessage() for record in caplog.records if "the history's partitions" in record.getMessage()]
    assert len(said) == 1
    assert "is not possible: permission denied for table pgqueue_attempt" in said[0]
    worker.execute("reset role")
    worker.execute("drop owned by pgqueue_test_worker")
    worker.execute("drop role pgqueue_test_worker")


def test_messages_of_channels_that_no_trigger_noted_are_found(
    worker: psycopg.Connection[Any], caplog: pytest.LogCaptureFixture
) -> None:
    with psycopg.connect(conninfo()) as other:
        other.execute("set session_replication_role = replica")
        for name in "ab":
            other.execute("select pgqueue_message_create('{}', 'default', p_channel => %s)", [name])
    take = "select count(*) from pgqueue_message_dequeue(array['default'], 2, 60000, 'w')"
    assert worker.execute(take.encode()).fetchall() == [(0,)]
    Maintenance(history_days=30).do_if_due(worker)
    found = [line for line in caplog.messages if line.startswith("found messages")]
    assert found == [f"found messages that no worker knew of channel={name}" for name in "ab"]
    assert worker.execute(take.encode()).fetchall() == [(2,)]


def test_bloat_is_logged_once_and_again_when_it_returns(
    worker: psycopg.Connection[Any], caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    caplog.set_level(logging.WARNING)
    monkeypatch.setattr(bloat, "MANY_DEAD", 1_000)
    worker.execute("alter table pgqueue_message set (autovacuum_enabled = off)")
    maintenance = Maintenance(history_days=None)

    def looked() -> int:
        maintenance.next_at = 0.0
        maintenance.do_if_due(worker)
        return sum("pgqueue_message has " in record.getMessage() for record in caplog.records)

    def deleted() -> None:
        worker.execute(
            "insert into pgqueue_message (dequeue_at, content) select i, '{}' from generate_series(1, 2000) i"
        )
        worker.execute("delete from pgqueue_message")
        wait_until(dead, "the counters are told")

    def dead() -> bool:
        return ("dead-rows", "pgqueue_message") in {(one.kind, one.name) for one in bloat.found(worker)}

    def vacuumed() -> bool:
        """Again and again: any snapshot may keep the rows for a while, and PostgreSQL 14 tells its counters later."""
        worker.execute("vacuum pgqueue_message")
        return not dead()

    try:
        wait_until(vacuumed, "the dead rows of other tests are gone: with them, the counters of these may come later")
        deleted()
        assert [looked(), looked()] == [1, 1]
        wait_until(vacuumed, "the dead rows are gone")
        assert looked() == 1
        deleted()
        assert looked() == 2
    finally:
        worker.execute("alter table pgqueue_message reset (autovacuum_enabled)")


def test_it_waits_for_a_lake_and_then_says_what_it_dropped(
    worker: psycopg.Connection[Any], caplog: pytest.LogCaptureFixture
) -> None:
    worker.execute(
        "insert into pgqueue_attempt (message_id, dequeue_at, created_at, finished_at, attempt, priority, final, "
        "status, queue) values (1, 0, '2020-02-03', '2020-02-03', 1, 0, true, 'succeeded', 'q')"
    )
    worker.execute("select pgqueue_lake_move('one', '/data/jobs', 0, false)")
    patient = Maintenance(history_days=30, lake_days=100_000)
    patient.do_if_due(worker)
    assert is_there(worker)
    assert "waits for a lake, for LAKE_DAYS=100000 days at most. /data/jobs was last exported never" in caplog.text
    assert AGAIN_SECONDS < seconds_left(patient) <= EVERY_SECONDS, "the lake may need hours"
    Maintenance(history_days=30, lake_days=7).do_if_due(worker)
    assert not is_there(worker)
    assert "dropped history that was not exported lake=/data/jobs attempts=1 until=2020-02-03" in caplog.text
