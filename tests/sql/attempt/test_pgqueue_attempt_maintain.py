"""Partitions of the history are made in time and dropped when they are old."""

from __future__ import annotations

import datetime as dt
import threading
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import TYPE_CHECKING

import psycopg
import pytest

from tests.support.databases import install, refuse
from tests.support.fixtures.servers import server
from tests.support.sessions import NOON, SECONDS, Session, concurrently, end_one, eventually, partition_of, token

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.support.fixtures.sessions import Connect
    from tests.support.server import Server

__all__ = ["server"]

DAY_MS = 86_400_000
FIRST = dt.date(2023, 11, 14)  # that of NOON, in UTC


def named(*days: int) -> list[str]:
    """The partitions of days after the first one."""
    return [f"pgqueue_attempt_{FIRST + dt.timedelta(days=day):%Y%m%d}" for day in days]


def partitions(session: Session) -> list[str]:
    """Those of the days of these tests, which are years ago."""
    return session.column("""
        select relname::text from pg_class
        where relkind = 'r' and relname like 'pgqueue_attempt_2023%' order by relname
    """)


def drop_partitions(session: Session) -> None:
    for name in partitions(session):
        session.rows(f"drop table {name}")


def test_partitions_of_today_and_a_week_ahead_are_created(session: Session) -> None:
    session.set_clock(NOON)
    assert session.value("pgqueue_attempt_maintain") == 8
    assert partitions(session) == named(*range(8))


def test_existing_partitions_are_not_created_again(session: Session) -> None:
    session.set_clock(NOON)
    session.value("pgqueue_attempt_maintain", days_ahead=1)
    assert session.value("pgqueue_attempt_maintain", days_ahead=1) == 0
    session.set_clock(NOON + DAY_MS)
    assert session.value("pgqueue_attempt_maintain", days_ahead=1) == 1
    assert partitions(session) == named(0, 1, 2)


def test_old_partitions_are_dropped_with_their_rows(session: Session) -> None:
    for day in range(5):
        session.set_clock(NOON + day * DAY_MS)
        session.value("pgqueue_attempt_maintain", days_ahead=0)
        end_one(session, NOON + day * DAY_MS)
    assert session.value("pgqueue_attempt_maintain", days_ahead=0, days_kept=2) == 2
    assert partitions(session) == named(2, 3, 4)
    assert len(session.history()) == 3


def test_without_a_number_of_days_nothing_is_dropped(session: Session) -> None:
    session.set_clock(NOON)
    session.value("pgqueue_attempt_maintain", days_ahead=0)
    session.set_clock(NOON + 200 * DAY_MS)
    session.value("pgqueue_attempt_maintain")
    assert partitions(session) == named(0)


def test_no_days_kept_leaves_today(session: Session) -> None:
    for day in (0, 1):
        session.set_clock(NOON + day * DAY_MS)
        session.value("pgqueue_attempt_maintain", days_ahead=0, days_kept=0)
    assert partitions(session) == named(1)


def test_a_day_that_a_view_needs_keeps_no_other_old_day(connect: Connect) -> None:
    session = connect(autocommit=False)
    for day in range(3):
        session.set_clock(NOON + day * DAY_MS)
        session.value("pgqueue_attempt_maintain", days_ahead=0)
    session.rows(f"create view report as select * from {named(0)[0]}")
    session.set_clock(NOON + 9 * DAY_MS)
    assert session.value("pgqueue_attempt_maintain", days_ahead=0, days_kept=2) == 3, "one made, two dropped"
    assert partitions(session) == named(0, 9)
    with pytest.raises(psycopg.errors.DependentObjectsStillExist, match="view report depends on table"):
        session.value("pgqueue_attempt_maintain", days_ahead=0, days_kept=2)


def test_a_day_that_cannot_be_prepared_keeps_no_other_old_day(connect: Connect) -> None:
    session = connect(autocommit=False)
    for day in range(3):
        session.set_clock(NOON + day * DAY_MS)
        session.value("pgqueue_attempt_maintain", days_ahead=0)
        end_one(session, NOON + day * DAY_MS)
    session.rows(
        "insert into pgqueue_child (message_id, parent_id, created_at) "
        "select min(message_id), -1, '2023-11-14' from pgqueue_attempt"
    )
    session.rows("create function refuse() returns trigger language plpgsql as $$ begin raise 'not this one'; end $$")
    session.rows("create trigger refuse before update on pgqueue_child for each row execute function refuse()")
    session.set_clock(NOON + 9 * DAY_MS)
    assert session.value("pgqueue_attempt_maintain", days_ahead=0, days_kept=2) == 3, "one made, two dropped"
    assert partitions(session) == named(0, 9)
    with pytest.raises(psycopg.errors.RaiseException, match="not this one"):
        session.value("pgqueue_attempt_maintain", days_ahead=0, days_kept=2)


def test_ten_days_that_cannot_be_dropped_keep_no_later_ones(connect: Connect) -> None:
    session = connect(autocommit=False)
    session.set_clock(NOON)
    session.value("pgqueue_attempt_maintain", days_ahead=11)
    refused, others = named(*range(10)), named(10, 11)
    session.rows("create view report as " + " union all ".join(f"select * from {name}" for name in refused))
    session.set_clock(NOON + 20 * DAY_MS)
    assert session.value("pgqueue_attempt_maintain", days_ahead=0, days_kept=2) == 1 + len(others)
    assert partitions(session) == [*refused, *named(20)]


@pytest.mark.parametrize("tag", ["CREATE TABLE", "DROP TABLE"])
def test_an_event_trigger_that_refuses_one_kind_leaves_the_other(connect: Connect, tag: str) -> None:
    """And maybe a right is missing: an owner of the tables may have lost that to make others in the schema."""
    session = connect(autocommit=False)
    session.set_clock(NOON)
    session.value("pgqueue_attempt_maintain", days_ahead=0)
    refuse(session, tag)
    session.set_clock(NOON + 9 * DAY_MS)
    assert session.value("pgqueue_attempt_maintain", days_ahead=0, days_kept=2) == 1
    assert partitions(session) == ([] if tag == "CREATE TABLE" else named(0, 9))
    with pytest.raises(psycopg.errors.RaiseException, match=f"no {tag}, please"):
        session.value("pgqueue_attempt_maintain", days_ahead=0, days_kept=2)


def test_tables_that_are_no_partitions_of_a_day_are_left_alone(session: Session) -> None:
    session.rows("create table pgqueue_attempt_20200101 (kept integer)")
    session.rows("""
        create table archive_of_2020 partition of pgqueue_attempt for values from ('2020-01-01') to ('2021-01-01')
    """)
    session.value("pgqueue_attempt_maintain", days_kept=0)
    assert session.one("select to_regclass('pgqueue_attempt_20200101') is not null")
    assert session.one("select to_regclass('archive_of_2020') is not null")
    assert session.one("select to_regclass('pgqueue_attempt_default') is not null")


@pytest.mark.parametrize("rows", [1, 10_001])
def test_a_day_that_somebody_has_detached_is_told_and_keeps_no_other_day(connect: Connect, rows: int) -> None:
    session = connect(autocommit=False)
    session.set_clock(NOON)
    session.value("pgqueue_attempt_maintain", days_ahead=0)
    [detached] = named(0)
    session.rows(f"alter table pgqueue_attempt detach partition {detached}")
    end_one(session, NOON)
    session.rows("insert into pgqueue_attempt select a.* from pgqueue_attempt a, generate_series(2, %s)", [rows])
    later = end_one(session, NOON + DAY_MS)
    session.set_clock(NOON + 3 * DAY_MS)
    assert session.value("pgqueue_attempt_maintain", days_ahead=0) == 2
    assert [partition_of(session, later)] == named(1)
    with pytest.raises(psycopg.errors.DuplicateTable, match=f"{detached} is there, and no partition"):
        session.value("pgqueue_attempt_maintain", days_ahead=0)
    session.rollback()


def test_attempts_of_days_without_maintenance_get_their_partitions(session: Session) -> None:
    """Retention drops partitions: what stayed in the default partition would stay for ever."""
    ended = [end_one(session, NOON + day * DAY_MS) for day in (0, 0, 3)]
    session.set_clock(NOON + 10 * DAY_MS)
    assert session.value("pgqueue_attempt_maintain", days_ahead=0) == 3
    assert [partition_of(session, end) for end in ended] == named(0, 0, 3)
    assert session.value("pgqueue_attempt_maintain", days_ahead=0, days_kept=8) == 1
    assert partitions(session) == named(3, 10)


def test_a_day_of_many_attempts_moves_alone(session: Session) -> None:
    """A call takes its locks until the end, so what it moves is bounded."""
    for day in (0, 1, 2):
        session.rows(
            """
            insert into pgqueue_attempt
                (message_id, dequeue_at, created_at, finished_at, attempt, priority, final, status, queue)
            select n, 0, pgqueue_from_epoch(%s), pgqueue_from_epoch(%s), 1, 0, true, 'succeeded', 'default'
            from generate_series(1, 6000) as n
            """,
            [NOON + day * DAY_MS] * 2,
        )
    session.set_clock(NOON + 10 * DAY_MS)
    made = [session.value("pgqueue_attempt_maintain", days_ahead=0) for _ in range(4)]
    assert made == [2, 1, 1, 0]
    assert session.one("select count(*) from pgqueue_attempt_default") == 0


def test_a_sequence_that_was_set_back_goes_past_all_known_ids(session: Session) -> None:
    """Tools set each sequence to the largest id of its table, and finished messages are in another one."""
    session.set_clock(NOON)
    ended = end_one(session, NOON)
    attempt_id = session.one("select max(id) from pgqueue_attempt")
    session.rows("""
        insert into pgqueue_attempt
            (message_id, dequeue_at, created_at, finished_at, attempt, priority, final, status, queue)
        values (9223372036854775807, 0, pgqueue_clock(), pgqueue_clock(), 1, 0, true, 'succeeded', 'by hand')
    """)
    before = {name: last_value(session, name) for name in ("pgqueue_message_id_seq", "pgqueue_attempt_id_seq")}
    session.value("pgqueue_attempt_maintain", days_ahead=0)
    assert before == {name: last_value(session, name) for name in before}, "nothing is wrong with them"
    for name in before:
        session.rows(f"select setval('{name}', 1, false)")
    session.value("pgqueue_attempt_maintain", days_ahead=0)
    assert last_value(session, "pgqueue_message_id_seq") == ended + 1000
    assert last_value(session, "pgqueue_attempt_id_seq") >= attempt_id + 1000
    assert session.create() == ended + 1001


def test_the_sequences_of_a_copy_by_logical_replication_go_past_the_ids_of_its_tables(session: Session) -> None:
    """It copies rows and no sequences: bindings, edits, reports and the roll-up were refused as duplicates."""
    counts = "succeeded, deferred, retried, failed, cancelled, lost, messages, message_attempts, wait_ms, run_ms"
    histograms = "wait_histogram, run_histogram"
    zeros = "0, 0, 0, 0, 0, 0, 0, 0, 0, 0, '{}', '{}'"
    session.rows("insert into pgqueue_exchange (name) values ('shop')")
    session.rows("insert into pgqueue_arrival (id, dequeue_at, raw, channel, queue) values (7, 0, true, 'c', 'mail')")
    session.rows("select setval('pgqueue_arrival_id_seq', 1, false)")
    for table, columns, values in (
        ("binding", "exchange, pattern, queue, likeness", "'shop', '#', 'mail', '%'"),
        ("edit", "first_id, last_id, position, action, asked_by", "1, 1, 0, 'cancel', 'me'"),
        ("rollup", f"minutes, starts_at, queue, {counts}, {histograms}", f"60, '2023-11-14', 'mail', {zeros}"),
        ("report_hour", f"hour, queue, enqueued, {counts}, {histograms}", f"now(), 'mail', 0, {zeros}"),
        ("report_queue", "hour, queue, depth, depth_max, running, running_max, slots", "now(), 'mail', 0, 0, 0, 0, 0"),
        ("report_error", "hour, queue, error_class, attempts", "now(), 'mail', 'Out', 1"),
    ):
        session.rows(f"select setval('pgqueue_{table}_id_seq', 1, false)")
        session.rows(f"insert into pgqueue_{table} (id, {columns}) values (7, {values})")
        session.value("pgqueue_attempt_maintain", days_ahead=0)
        assert last_value(session, f"pgqueue_{table}_id_seq") == 1007
    assert last_value(session, "pgqueue_arrival_id_seq") >= 1007


def last_value(session: Session, sequence: str) -> int:
    value: int = session.one(f"select last_value from {sequence}")
    return value


def test_days_are_moved_beside_a_publication_for_all_tables(session: Session) -> None:
    """PostgreSQL refuses to delete rows of a published table that has neither a primary key nor another identity."""
    session.rows("create publication everything for all tables")
    ended = end_one(session, NOON)
    session.rows("""
        insert into pgqueue_step (message_id, recorded_at, finished_at, attempt, name, kind, status)
        values (1, pgqueue_clock(), pgqueue_clock(), 1, 'one', 'step', 'done')
    """)
    session.set_clock(NOON + 10 * DAY_MS)
    assert session.value("pgqueue_attempt_maintain", days_ahead=0) == 2
    assert session.value("pgqueue_step_maintain") >= 1
    assert [partition_of(session, ended)] == named(0)
    session.rows("delete from pgqueue_attempt")
    session.rows("delete from pgqueue_step")


def test_each_table_whose_rows_are_deleted_has_an_identity(session: Session) -> None:
    session.value("pgqueue_attempt_maintain")
    without = session.column("""
        select c.relname::text from pg_class c
        where c.relname like 'pgqueue\\_%' and c.relkind in ('r', 'p') and c.relpersistence = 'p'
          and c.relreplident <> 'f'
          and not exists (select from pg_index i where i.indrelid = c.oid and i.indisprimary)
    """)
    assert without == []


@pytest.mark.slow
@pytest.mark.once
def test_old_days_are_dropped_where_the_server_has_no_room_for_a_lock_of_each(server: Server) -> None:
    with server.connect() as others, server.connect() as connection:
        session = Session(connection)
        install(session)
        session.rows("""
            select pgqueue_attempt_partition(((now() at time zone 'UTC') - make_interval(days => n))::date)
            from generate_series(1, 140) as n
        """)
        with pytest.raises(psycopg.errors.OutOfMemory):
            others.execute("select pg_advisory_lock(n) from generate_series(1, 1000000) as n")
        others.execute("select pg_advisory_unlock(n) from generate_series(1, 500) as n")
        with pytest.raises(psycopg.errors.OutOfMemory):
            session.rows("select from pgqueue_attempt where message_id = 1")
        said: list[str | None] = []
        connection.add_notice_handler(lambda notice: said.append(notice.message_primary))
        assert session.value("pgqueue_attempt_maintain", days_ahead=8) == 1
        assert said == ["the ids of the history are not looked at: the server has no room for a lock of each day"]
        dropped = [session.value("pgqueue_attempt_maintain", days_kept=30)]
        while dropped[-1]:
            dropped.append(session.value("pgqueue_attempt_maintain", days_kept=30))
        assert sum(dropped) == 110


def test_only_one_session_maintains_and_others_skip(connect: Connect) -> None:
    working, passing = connect(autocommit=False), connect()
    for session in (working, passing):
        session.set_clock(NOON)
    assert working.value("pgqueue_attempt_maintain") == 8
    assert passing.value("pgqueue_attempt_maintain") == 0
    working.rollback()


def test_behind_a_long_reader_it_gives_up_and_traffic_goes_on(connect: Connect) -> None:
    reader, maintainer, worker = connect(autocommit=False), connect(), connect()
    worker.create()
    reader.rows("select count(*) from pgqueue_attempt")  # a report that is in no hurry to end its transaction
    maintainer.set_clock(NOON)
    worker.rows("set lock_timeout = '5s'")

    def maintain() -> int:
        changed: int = maintainer.value("pgqueue_attempt_maintain", days_kept=0)
        return changed

    def work() -> bool:
        eventually(lambda: worker.waits_for_a_lock(maintainer))
        done: bool = worker.value("pgqueue_message_complete", **token(worker.take()))
        return done

    assert concurrently([maintain, work]) == [0, True]
    assert partitions(worker) == []

    reader.rollback()
    try:
        assert maintainer.value("pgqueue_attempt_maintain") == 8
    finally:
        drop_partitions(worker)


def test_a_reader_of_an_old_day_blocks_neither_traffic_nor_new_partitions(connect: Connect) -> None:
    """While the drop waits, and gives up, again and again: enqueue, dequeue and complete go on."""
    reader, maintainer, worker = connect(autocommit=False), connect(), connect()
    worker.value("pgqueue_attempt_partition", day=FIRST - dt.timedelta(days=9))
    worker.rows("set lock_timeout = '5s'")
    maintainer.set_clock(NOON)
    held = f"pgqueue_attempt_{FIRST - dt.timedelta(days=9):%Y%m%d}"
    reader.rows(f"select from {held}")
    done, rounds = threading.Event(), 0

    def maintain() -> list[int]:
        try:
            return [maintainer.value("pgqueue_attempt_maintain", days_ahead=1, days_kept=2) for _ in range(4)]
        finally:
            done.set()

    def work() -> list[int]:
        nonlocal rounds
        while not done.is_set() or rounds == 0:
            worker.create()
            assert worker.value("pgqueue_message_complete", **token(worker.take()))
            rounds += 1
        return []

    try:
        assert concurrently([maintain, work])[0] == [2, 0, 0, 0]
        assert rounds > 0
        assert held in partitions(worker)
        reader.rollback()
        assert maintainer.value("pgqueue_attempt_maintain", days_ahead=1, days_kept=2) == 1
        assert held not in partitions(worker)
    finally:
        reader.rollback()
        drop_partitions(worker)


def test_very_many_old_days_are_dropped_ten_at_a_time(session: Session) -> None:
    for day in range(1, 14):
        session.value("pgqueue_attempt_partition", day=FIRST - dt.timedelta(days=day))
    session.set_clock(NOON)
    assert session.value("pgqueue_attempt_maintain", days_ahead=0, days_kept=0) == 11
    assert partitions(session) == named(-3, -2, -1, 0)
    assert session.value("pgqueue_attempt_maintain", days_ahead=0, days_kept=0) == 3


@pytest.fixture
def two_failures(connect: Connect) -> Iterator[tuple[Session, int]]:
    """On each of two old days a failure, with a message that waits for its success and for one that stays open."""
    session = connect(autocommit=False)
    session.set_clock(NOON)
    open_one = session.create(dequeue_at=NOON + 90 * DAY_MS)
    for day in range(2):
        session.set_clock(NOON + day * DAY_MS)
        session.value("pgqueue_attempt_maintain", days_ahead=0)
        failing = session.create()
        waiting = {"after_ids": [failing, open_one], "content": "tea", "policy": "succeeded"}
        session.value("pgqueue_message_create_after", **waiting)
        session.value("pgqueue_message_fail", **token(session.take()))
        session.value("pgqueue_message_settle")
    session.set_clock(NOON + 5 * DAY_MS)
    session.value("pgqueue_attempt_maintain", days_ahead=0)
    session.rows("create table modes (mode text)")
    session.rows("""
        create function note() returns trigger language plpgsql as $$
        begin
            insert into modes select l.mode from pg_locks l
            where l.pid = pg_backend_pid() and l.relation = 'pgqueue_attempt'::regclass;
            return old;
        end $$
    """)
    session.rows("create trigger note before delete on pgqueue_message for each row execute function note()")
    session.commit()
    yield session, open_one
    session.rollback()
    drop_partitions(session)
    session.rows("delete from pgqueue_attempt")
    session.rows("drop trigger note on pgqueue_message")
    session.rows("delete from pgqueue_message")
    session.rows("drop function note")
    session.rows("drop table modes")
    session.commit()


def test_who_waits_is_looked_at_before_the_lock_of_a_drop(two_failures: tuple[Session, int]) -> None:
    """That may take long, and no attempt could end behind this lock."""
    session, open_one = two_failures
    changed = [session.value("pgqueue_attempt_maintain", days_ahead=0, days_kept=3) for _ in range(3)]
    assert changed == [2, 2, 0], "cancelled, and then dropped"
    assert [row.id for row in session.messages()] == [open_one]
    modes = session.column("select distinct mode from modes")
    assert "ShareUpdateExclusiveLock" in modes
    assert "AccessExclusiveLock" not in modes


def test_a_parent_that_waits_for_a_drop_finds_the_ends_of_its_children(connect: Connect) -> None:
    """Its snapshot is from before the drop, and it reads after that."""
    session, maintainer, reader = connect(), connect(autocommit=False), connect()
    session.set_clock(NOON)
    session.value("pgqueue_attempt_maintain", days_ahead=0)
    parent_id, child_id = session.create(task="parent"), session.create(task="child", priority=1)
    session.rows(
        "insert into pgqueue_child (message_id, parent_id, created_at) values (%s, %s, pgqueue_clock())",
        [child_id, parent_id],
    )
    session.value("pgqueue_message_complete", **token(session.take(tasks=True)))
    maintainer.set_clock(NOON + 5 * DAY_MS)
    ask = partial(reader.column, "select p_status from pgqueue_child_outcomes(%s, array[%s])", [parent_id, child_id])
    try:
        with ThreadPoolExecutor(1) as pool:
            while maintainer.value("pgqueue_attempt_maintain", days_ahead=0, days_kept=3):
                found = pool.submit(ask)
                eventually(lambda: found.done() or session.waits_for_a_lock(reader))  # noqa: B023 -- waits here
                maintainer.commit()
                assert found.result(SECONDS) == ["succeeded"]
        assert partitions(session) == named(5)
    finally:
        maintainer.rollback()
        drop_partitions(session)
        for table in ("pgqueue_message", "pgqueue_child"):
            session.rows(f"delete from {table}")


def test_a_day_for_whose_failures_very_many_wait_is_dropped_by_a_later_call(two_failures: tuple[Session, int]) -> None:
    session, _ = two_failures
    session.rows("alter table pgqueue_message disable trigger note")
    session.rows(
        """
        insert into pgqueue_message (dequeue_at, content, in_line, after_policy, after_ids, awaited_id, checks)
        select m.dequeue_at, '1', false, 'succeeded', m.after_ids, m.awaited_id, 1
        from pgqueue_message m, generate_series(1, 9999) where m.id = (select max(id) from pgqueue_message)
        """
    )
    session.commit()
    changed = [session.value("pgqueue_attempt_maintain", days_ahead=0, days_kept=3) for _ in range(3)]
    assert changed == [1 + 10_000, 2, 0], "both days are dropped when nobody is left"
    assert partitions(session) == named(5)


def test_forty_detached_days_keep_no_later_day(connect: Connect) -> None:
    session = connect(autocommit=False)
    for day in range(40):
        session.rows(f"create table {named(day)[0]} ()")
        end_one(session, NOON + day * DAY_MS)
    later = end_one(session, NOON + 50 * DAY_MS)
    session.set_clock(NOON + 60 * DAY_MS)
    assert session.value("pgqueue_attempt_maintain", days_ahead=0) == 2
    assert [partition_of(session, later)] == [f"pgqueue_attempt_{FIRST + dt.timedelta(days=50):%Y%m%d}"]
    with pytest.raises(psycopg.errors.DuplicateTable, match=f"{named(0)[0]} is there, and no partition"):
        session.value("pgqueue_attempt_maintain", days_ahead=0)
    session.rollback()


def test_the_sessions_own_lock_timeout_comes_back(session: Session) -> None:
    session.rows("set lock_timeout = '7s'")
    session.set_clock(NOON)
    session.value("pgqueue_attempt_maintain")
    assert session.one("show lock_timeout") == "7s"


@pytest.mark.parametrize("days", [{"days_ahead": 2**31 - 1}, {"days_ahead": -1}, {"days_kept": -1}])
def test_invalid_numbers_of_days_are_refused(session: Session, days: dict[str, int]) -> None:
    with pytest.raises(psycopg.errors.InvalidParameterValue, match="p_days_ahead is"):
        session.call("pgqueue_attempt_maintain", **days)


def test_days_that_were_moved_to_another_schema_are_dropped_as_well(session: Session) -> None:
    session.set_clock(NOON)
    session.rows("create schema archive")
    for noun in ("attempt", "step"):
        assert session.one(f"select pgqueue_{noun}_partition('{FIRST}')") is True
        session.rows(f"alter table pgqueue_{noun}_{FIRST:%Y%m%d} set schema archive")
    session.rows("insert into pgqueue_lake (id, location, position) values ('moved', '/lake', 9223372036854775807)")
    session.set_clock(NOON + 40 * DAY_MS)
    for noun in ("attempt", "step"):
        while session.value(f"pgqueue_{noun}_maintain", days_kept=30, lake_days=0):
            pass
    left = "select count(*) from pg_class where relnamespace = 'archive'::regnamespace and relkind = 'r'"
    assert session.one(left) == 0
