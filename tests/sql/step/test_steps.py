"""The records of steps: fenced, read, kept as long as their message."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import TYPE_CHECKING, Any

import psycopg
import pytest

from tests.support.databases import refuse
from tests.support.sessions import NOON, SECONDS, eventually, token, tokens

if TYPE_CHECKING:
    from tests.support.fixtures.sessions import Connect
    from tests.support.sessions import Session

pytestmark = pytest.mark.once
DAY_MS = 86_400_000


# pgqueue_step_record: the holder of a message records its steps, and nobody else


def test_the_holder_records_a_step(session: Session) -> None:
    session.create(task="t")
    held = session.take(tasks=True)
    assert session.value("pgqueue_step_record", **token(held), name="one", result="x")
    [row] = session.rows("select name, status, attempt, result from pgqueue_step")
    assert (row.name, row.status, row.attempt, row.result) == ("one", "done", 1, "x")


def test_a_late_worker_records_nothing(session: Session) -> None:
    session.create(task="t")
    held = token(session.take(tasks=True))
    assert not session.value("pgqueue_step_record", **(held | {"attempt": 2}), name="one")
    assert not session.value("pgqueue_step_record", **(held | {"worker": "another"}), name="one")
    session.value("pgqueue_message_defer", **held)
    assert not session.value("pgqueue_step_record", **held, name="one")
    assert session.rows("select from pgqueue_step") == []


def test_a_record_keeps_a_take_over_away_and_lets_a_heartbeat_pass(connect: Connect) -> None:
    worker, other = connect(autocommit=False), connect()
    other.create(task="t")
    held = token(other.take(tasks=True, lock_ms=1))
    assert worker.value("pgqueue_step_record", **held, name="one")
    assert other.value("pgqueue_message_heartbeat", **held, lock_ms=0)
    assert other.value("pgqueue_message_expire") == 0
    worker.commit()
    assert other.value("pgqueue_message_expire") == 1


# pgqueue_step_record_many: the same for several, without waiting


RECORD_MANY = "select pgqueue_step_record_many(%s, %s, %s, %s, %s::text[]::jsonb[], %s, %s, %s::timestamptz[])"


def test_many_are_recorded_at_once_and_the_places_returned(connect: Connect) -> None:
    worker, other = connect(), connect(autocommit=False)
    for _ in range(4):
        worker.create(task="t")
    taken = [worker.take(tasks=True) for _ in range(4)]
    ids, workers = [row.id for row in taken], [row.worker for row in taken]
    other.rows("select from pgqueue_message where id = %s for update", [ids[1]])
    places = worker.column(
        RECORD_MANY,
        [
            [*ids, 0], [1, 1, 2, 1, 1], [*workers, "w"], ["a", "b", "c", "d", "e"],
            ["1", None, None, None, None], ["step"] * 5, ["done"] * 3 + ["began", "done"], [None] * 5,
        ],
    )  # fmt: skip
    assert sorted(places) == [1, 4], "the second is locked, the third has another attempt, the fifth does not exist"
    rows = worker.rows("select message_id, name, status, attempt, result from pgqueue_step order by name")
    assert [tuple(row) for row in rows] == [(ids[0], "a", "done", 1, 1), (ids[3], "d", "began", 1, None)]


def test_many_do_not_wait_for_who_has_prolonged_and_ended_one_of_their_messages(connect: Connect) -> None:
    late, busy = connect(), connect(autocommit=False)
    for _ in range(2):
        late.create(task="t")
    taken = [late.take(tasks=True) for _ in range(2)]
    busy.ids("pgqueue_message_heartbeat", **tokens(taken[:1]))
    busy.value("pgqueue_message_complete", **token(taken[0]))
    late.rows("set lock_timeout = '1s'")
    ids, workers = [row.id for row in taken], [row.worker for row in taken]
    steps = [ids, [1, 1], workers, ["a", "b"], [None] * 2, ["step"] * 2, ["done"] * 2, [None] * 2]
    assert late.column(RECORD_MANY, steps) == [], "none is known to be held: each is recorded alone"
    assert late.one("show lock_timeout") == "1s"
    busy.commit()
    assert late.column(RECORD_MANY, steps) == [2]


# pgqueue_step_load: the records of one message
# pgqueue_step_result: one of its results


def test_the_records_of_a_message_are_read_without_what_is_large(session: Session) -> None:
    session.create(task="t")
    held = session.take(tasks=True)
    large = "".join(f"{n:06}" for n in range(10_000))
    for name, result in (("small", 1), ("large", large)):
        session.value("pgqueue_step_record", **token(held), name=name, result=result)
    rows = session.rows("select * from pgqueue_step_load(%s, %s)", (held.id, held.created_at))
    assert [(row.p_name, row.p_is_large, row.p_result) for row in rows] == [("small", False, 1), ("large", True, None)]
    assert session.one("select pgqueue_step_result(%s, %s, 'large')", (held.id, held.created_at)) == large


def test_the_records_of_a_message_that_was_enqueued_while_the_clock_was_ahead_are_read(session: Session) -> None:
    session.set_clock(NOON + 3 * DAY_MS)
    message_id = session.create(task="t")
    session.set_clock(NOON)
    session.ids("pgqueue_message_reschedule", ids=[message_id])
    held = session.take(tasks=True)
    session.value("pgqueue_step_record", **token(held), name="one", status="began")
    session.set_clock(NOON + 1)
    session.value("pgqueue_step_record", **token(held), name="one", result=1)
    assert session.one("select count(distinct recorded_at) from pgqueue_step") == 2
    session.column(
        RECORD_MANY,
        [[held.id], [1], [held.worker], ["two"], ["2"], ["step"], ["done"], [None]],
    )
    session.value("pgqueue_message_suspend", **token(held), name="nap", until=NOON)
    rows = session.rows("select * from pgqueue_step_load(%s, %s)", (held.id, held.created_at))
    assert sorted(row.p_name for row in rows) == ["nap", "one", "one", "two"]
    assert session.one("select pgqueue_step_result(%s, %s, 'one')", (held.id, held.created_at)) == 1


def test_the_records_of_later_attempts_come_last_also_when_the_clock_went_back(session: Session) -> None:
    session.set_clock(NOON)
    session.create(task="t")
    held = session.take(tasks=True)
    session.set_clock(NOON + DAY_MS)
    session.value("pgqueue_step_record", **token(held), name="one", status="began")
    session.value("pgqueue_step_record", **token(held), name="one", status="failed", error="trouble")
    session.set_clock(NOON)
    session.value("pgqueue_message_defer", **token(held))
    held = session.take(tasks=True)
    session.value("pgqueue_step_record", **token(held), name="one", status="began")
    rows = session.rows("select * from pgqueue_step_load(%s, %s)", (held.id, held.created_at))
    assert [(row.p_status, row.p_attempt) for row in rows][-1] == ("began", 2)


# pgqueue_step_enqueue: again, from one step on


def test_a_message_runs_again_from_a_step_with_what_was_done_before_it(session: Session) -> None:
    session.create(task="t", max_attempts=2)
    held = session.take(tasks=True)
    for name in ("one", "two", "three"):
        session.value("pgqueue_step_record", **token(held), name=name, result=name)
    session.value("pgqueue_message_fail", **token(held))
    new = session.value("pgqueue_step_enqueue", message_id=held.id, step="two")
    taken = session.take(tasks=True)
    assert (taken.id, taken.attempt, taken.max_attempts) == (new, 2, 3)
    rows = session.rows("select p_name, p_result, p_attempt from pgqueue_step_load(%s, %s)", (new, taken.created_at))
    assert [tuple(row) for row in rows] == [("one", "one", 1)]


@pytest.mark.parametrize("max_attempts", [1, None])
def test_a_message_that_ran_from_a_step_has_as_many_attempts_again(session: Session, max_attempts: int | None) -> None:
    session.create(task="t", max_attempts=max_attempts, headers={"trace": 1})
    for _ in range(2):
        held = session.take(tasks=True)
        session.value("pgqueue_step_record", **token(held), name="one", result=1)
        session.value("pgqueue_message_fail", **token(held))
        new = session.value("pgqueue_step_enqueue", message_id=held.id, step="one")
        assert session.message(new).max_attempts == (max_attempts and max_attempts + 1)
    session.value("pgqueue_message_fail", **token(session.take(tasks=True)))
    [anew] = session.ids("pgqueue_attempt_enqueue", attempt_ids=[session.history(new)[-1].id])
    message = session.message(anew)
    assert (message.attempt, message.max_attempts) == (0, max_attempts)
    assert message.headers == {"trace": 1, "enqueued_again_from": new}


@pytest.mark.parametrize(("ends", "expected"), [(False, "has not ended"), (True, "has no step four")])
def test_a_message_that_cannot_run_again_is_told(session: Session, ends: bool, expected: str) -> None:
    session.create(task="t")
    held = session.take(tasks=True)
    if ends:
        session.value("pgqueue_message_fail", **token(held))
    with pytest.raises(psycopg.errors.InvalidParameterValue, match=expected):
        session.value("pgqueue_step_enqueue", message_id=held.id, step="four")


@pytest.mark.parametrize("step", ["one", "two"])
def test_a_message_whose_channel_is_full_cannot_run_again(connect: Connect, step: str) -> None:
    session = connect()
    session.create(task="t", channel="acme")
    held = session.take(tasks=True)
    for name in ("one", "two"):
        session.value("pgqueue_step_record", **token(held), name=name)
    session.value("pgqueue_message_fail", **token(held))
    session.call("pgqueue_channel_set", name="acme", max_size=0)
    with pytest.raises(psycopg.errors.InvalidParameterValue, match="is full, or was released"):
        session.value("pgqueue_step_enqueue", message_id=held.id, step=step)
    assert session.messages() == []


# pgqueue_step_maintain: retention drops days, and nothing of a message that is in the queue
# pgqueue_step_partition: a day


def partitions(session: Session) -> list[str]:
    return session.column("""
        select relname::text from pg_class where relkind = 'r' and relname like 'pgqueue_step_2023%' order by relname
    """)


@pytest.fixture
def in_2023(session: Session) -> Any:
    """Days of their own."""
    session.set_clock(NOON)
    yield session
    for name in partitions(session):
        session.rows(f"drop table {name}")
    session.rows("delete from pgqueue_step")


def test_rows_of_a_day_without_a_partition_move_into_it(in_2023: Session) -> None:
    session = in_2023
    session.create(task="t")
    session.value("pgqueue_step_record", **token(session.take(tasks=True)), name="one")
    assert session.one("select tableoid::regclass::text from pgqueue_step") == "pgqueue_step_default"
    session.value("pgqueue_step_maintain", days_ahead=1)
    assert partitions(session) == ["pgqueue_step_20231114", "pgqueue_step_20231115"]
    assert session.one("select tableoid::regclass::text from pgqueue_step") == "pgqueue_step_20231114"


def test_retention_drops_the_steps_of_ended_messages_and_keeps_those_of_others(in_2023: Session) -> None:
    session = in_2023
    for name in ("ended", "runs"):
        session.create(task="t")
        held = session.take(tasks=True)
        session.value("pgqueue_step_record", **token(held), name=name, result=name)
        if name == "ended":
            session.value("pgqueue_message_fail", **token(held))
    session.value("pgqueue_step_maintain", days_ahead=0)
    session.set_clock(NOON + 5 * DAY_MS)
    session.call("pgqueue_lake_move", id="lake", location="/lake", position=0)
    while session.value("pgqueue_step_maintain", days_ahead=0, days_kept=3):
        pass
    assert sorted(session.column("select name from pgqueue_step")) == ["ended", "runs"], "a lake may need them"
    session.value("pgqueue_lake_forget", lake="lake")
    while session.value("pgqueue_step_maintain", days_ahead=0, days_kept=3):
        pass
    [row] = session.rows(
        "select name, recorded_at > finished_at as is_written_anew, tableoid::regclass::text from pgqueue_step"
    )
    assert (row.name, row.is_written_anew, row.tableoid) == ("runs", True, "pgqueue_step_20231119")


def test_retention_keeps_the_steps_of_a_message_as_long_as_its_end(in_2023: Session) -> None:
    session = in_2023
    session.create(task="t")
    held = session.take(tasks=True)
    session.value("pgqueue_step_record", **token(held), name="charge", status="began")
    session.set_clock(NOON + 1)
    session.value("pgqueue_step_record", **token(held), name="charge")
    child = session.create(task="child", dequeue_at=NOON + 90 * DAY_MS)
    assert session.value("pgqueue_child_add", **token(held), child_id=child)
    session.value("pgqueue_message_suspend", **token(held), name="ok", kind="approval")
    session.value("pgqueue_approval_decide", message_id=held.id, name="ok", approved=True, by="ada")
    session.value("pgqueue_message_settle")
    session.value("pgqueue_step_maintain", days_ahead=4)
    session.set_clock(NOON + 4 * DAY_MS)
    held = session.take(tasks=True)
    session.value("pgqueue_step_record", **token(held), name="ask", status="failed", error="trouble")
    session.value("pgqueue_message_fail", **token(held))
    session.set_clock(NOON + 6 * DAY_MS)
    while session.value("pgqueue_step_maintain", days_ahead=0, days_kept=3):
        pass
    days = session.column("select distinct tableoid::regclass::text from pgqueue_step where message_id = %s", [held.id])
    apart = "select count(distinct recorded_at) from pgqueue_step where message_id = %s and name = 'charge'"
    assert session.one(apart, [held.id]) == 2
    assert days == ["pgqueue_step_20231118"], "the day of its end"
    assert session.one("select count(*) from pgqueue_approval") == 1
    new = session.value("pgqueue_step_enqueue", message_id=held.id, step="ask")
    names = session.column("select name from pgqueue_step where message_id = %s", [new])
    assert names == ["charge"], "it is not done again"
    assert session.column("select parent_id from pgqueue_child order by 1") == [held.id, new]
    session.value("pgqueue_message_cancel", ids=[new])
    session.set_clock(NOON + 8 * DAY_MS)
    while session.value("pgqueue_step_maintain", days_ahead=0, days_kept=3):
        pass
    for table in ("pgqueue_step", "pgqueue_child"):
        column = "message_id" if table == "pgqueue_step" else "parent_id"
        assert session.one(f"select count(*) from {table} where {column} = %s", [held.id]) == 0
    assert session.one("select count(*) from pgqueue_approval") == 0


def test_retention_deletes_old_events_and_the_rest_of_ended_messages(in_2023: Session) -> None:
    session = in_2023
    session.value("pgqueue_event_emit", name="old")
    message_id = session.create(task="t")
    held = token(session.take(tasks=True))
    session.rows("select pgqueue_budget_spend(%s, 1, 'b', 1, 2, %s)", (message_id, held["worker"]))
    child = session.create(task="t")
    assert session.value("pgqueue_child_add", **held, child_id=child)
    session.value("pgqueue_message_fail", **held)
    session.set_clock(NOON + 5 * DAY_MS)
    session.value("pgqueue_event_emit", name="young")
    while session.value("pgqueue_step_maintain", days_ahead=0, days_kept=3):
        pass
    assert session.column("select name from pgqueue_event") == ["young"]
    assert session.rows("select from pgqueue_budget") == session.rows("select from pgqueue_child") == []


def test_retention_locks_no_more_days_of_a_long_history_than_there_is_room_for(connect: Connect) -> None:
    session = connect(autocommit=False)
    session.set_clock(NOON)
    session.create(task="t")
    session.value("pgqueue_step_record", **token(session.take(tasks=True)), name="one")
    session.value("pgqueue_step_maintain", days_ahead=0)
    for day in ("2024-01-20", "2025-02-20"):
        session.value("pgqueue_attempt_partition", day=day)
    session.commit()
    try:
        session.set_clock(NOON + 500 * DAY_MS)
        session.rows("insert into pgqueue_child (message_id, parent_id, created_at) values (-1, -2, '2023-11-14')")
        while session.value("pgqueue_step_maintain", days_ahead=0, days_kept=450):
            pass
        locked = session.column("""
            select relation::regclass::text from pg_locks
            where pid = pg_backend_pid() and relation::regclass::text ~ '^pgqueue_attempt_[0-9]{8}$'
        """)
        assert "pgqueue_attempt_20240120" in locked
        assert "pgqueue_attempt_20250220" not in locked
    finally:
        session.rollback()
        session.rows("drop table pgqueue_attempt_20240120, pgqueue_attempt_20250220, pgqueue_step_20231114")
        session.rows("delete from pgqueue_message")
        session.commit()


def test_retention_keeps_the_results_for_a_callback_as_long_as_its_end(in_2023: Session) -> None:
    session = in_2023
    other = session.create(task="t")
    callback = session.value(
        "pgqueue_message_create_after", after_ids=[other], content="tea", task="callback", keep_results=True
    )
    session.set_clock(NOON + 4 * DAY_MS)
    assert session.ids("pgqueue_message_cancel", ids=[other]) == [other]
    session.value("pgqueue_message_settle")
    session.value("pgqueue_message_fail", **token(session.take(tasks=True)))
    for days, kept in ((6, [callback]), (8, [])):
        session.set_clock(NOON + days * DAY_MS)
        while session.value("pgqueue_step_maintain", days_ahead=0, days_kept=3):
            pass
        assert session.column("select parent_id from pgqueue_child") == kept


def an_old_day_with_a_child(session: Session) -> None:
    session.set_clock(NOON)
    session.create(task="t")
    held = token(session.take(tasks=True))
    session.value("pgqueue_step_record", **held, name="one")
    session.value("pgqueue_message_fail", **held)
    session.value("pgqueue_step_maintain", days_ahead=0)
    session.set_clock(NOON + 5 * DAY_MS)
    session.rows("insert into pgqueue_child (message_id, parent_id, created_at) values (-1, -2, '2023-11-14')")


def test_a_task_that_waits_for_a_drop_finds_its_steps(connect: Connect) -> None:
    """Its snapshot is from before the drop, and it reads after that."""
    session, maintainer, reader = connect(), connect(autocommit=False), connect()
    session.set_clock(NOON)
    message_id = session.create(task="t")
    session.value("pgqueue_step_record", **token(session.take(tasks=True)), name="charge")
    session.value("pgqueue_step_maintain", days_ahead=0)
    maintainer.set_clock(NOON + 5 * DAY_MS)
    load = partial(reader.column, "select p_name from pgqueue_step_load(%s, null)", [message_id])
    try:
        with ThreadPoolExecutor(1) as pool:
            while maintainer.value("pgqueue_step_maintain", days_ahead=0, days_kept=3):
                found = pool.submit(load)
                eventually(lambda: found.done() or session.waits_for_a_lock(reader))  # noqa: B023 -- waits here
                maintainer.commit()
                assert found.result(SECONDS) == ["charge"]
        assert partitions(session) == ["pgqueue_step_20231119"]
    finally:
        maintainer.rollback()
        for name in partitions(session):
            session.rows(f"drop table {name}")
        session.rows("delete from pgqueue_message")


def test_what_retention_deletes_it_deletes_before_it_locks_the_steps(connect: Connect) -> None:
    """The looks at the history may take a while, in which nobody could record a step."""
    session = connect(autocommit=False)
    an_old_day_with_a_child(session)
    session.rows("create table modes (mode text)")
    session.rows("""
        create function note() returns trigger language plpgsql as $$
        begin
            insert into modes select l.mode from pg_locks l
            where l.pid = pg_backend_pid() and l.relation = 'pgqueue_step'::regclass
              and l.mode in ('AccessExclusiveLock', 'ShareRowExclusiveLock');
            return old;
        end $$
    """)
    session.commit()
    try:
        session.rows("create trigger note before delete on pgqueue_child for each row execute function note()")
        assert session.value("pgqueue_step_maintain", days_ahead=0, days_kept=3) == 1 + 1, "deleted, made"
        assert session.one("select count(*) from pgqueue_child") == 0
        assert session.column("select mode from modes") == []
        assert session.value("pgqueue_step_maintain", days_ahead=0, days_kept=3) == 1, "dropped"
    finally:
        session.rollback()
        for name in partitions(session):
            session.rows(f"drop table {name}")
        session.rows("delete from pgqueue_child")
        session.rows("delete from pgqueue_step")
        session.rows("delete from pgqueue_attempt")
        session.rows("drop function note")
        session.rows("drop table modes")
        session.commit()


def test_while_a_day_of_the_history_is_dropped_the_days_of_steps_are_made_all_the_same(connect: Connect) -> None:
    session, dropping = connect(autocommit=False), connect(autocommit=False)
    an_old_day_with_a_child(session)
    session.rows("insert into pgqueue_event (name, payload, emitted_at) values ('old', '1', '2023-11-14')")
    session.commit()
    try:
        dropping.rows("lock table pgqueue_attempt in access exclusive mode")
        assert session.value("pgqueue_step_maintain", days_ahead=0, days_kept=3) == 1
        assert session.value("pgqueue_step_maintain", days_ahead=0, days_kept=3) == 0, "nobody calls it without end"
        dropping.rollback()
        assert session.value("pgqueue_step_maintain", days_ahead=0, days_kept=3) == 1 + 1
        assert session.value("pgqueue_step_maintain", days_ahead=0, days_kept=3) == 1
        assert partitions(session) == ["pgqueue_step_20231119"]
    finally:
        dropping.rollback()
        session.rollback()
        for name in partitions(session):
            session.rows(f"drop table {name}")
        session.rows("delete from pgqueue_child")
        session.rows("delete from pgqueue_step")
        session.rows("delete from pgqueue_attempt")
        session.commit()


@pytest.mark.parametrize("tag", ["CREATE TABLE", "DROP TABLE"])
def test_a_day_that_cannot_be_made_or_dropped_keeps_no_event(connect: Connect, tag: str) -> None:
    session = connect(autocommit=False)
    session.set_clock(NOON)
    session.create(task="t")
    session.value("pgqueue_step_record", **token(session.take(tasks=True)), name="one")
    session.value("pgqueue_event_emit", name="old")
    session.value("pgqueue_step_maintain", days_ahead=0)
    refuse(session, tag)
    session.set_clock(NOON + 5 * DAY_MS)
    calls = 3 if tag == "CREATE TABLE" else 2  # a call that deletes or moves something drops no day
    changed = sum(session.value("pgqueue_step_maintain", days_ahead=0, days_kept=3) for _ in range(calls))
    assert changed == 3, "a day, an event, and a step of a message in the queue"
    assert session.column("select name from pgqueue_event") == []
    with pytest.raises(psycopg.errors.RaiseException, match=f"no {tag}, please"):
        session.value("pgqueue_step_maintain", days_ahead=0, days_kept=3)


def test_a_day_of_steps_that_a_view_needs_keeps_no_other_old_day(connect: Connect) -> None:
    session = connect(autocommit=False)
    session.set_clock(NOON)
    session.create(task="t")
    session.value("pgqueue_step_record", **token(session.take(tasks=True)), name="one")
    session.value("pgqueue_step_maintain", days_ahead=2)
    first, second, third = step_days(session)
    session.rows(f"create view report as select * from {first}")
    session.set_clock(NOON + 9 * DAY_MS)
    for _ in range(4):  # one is made, then a step is moved, and then one is dropped a call
        session.value("pgqueue_step_maintain", days_ahead=0, days_kept=3)
    assert first in step_days(session)
    assert not {second, third} & set(step_days(session))
    with pytest.raises(psycopg.errors.DependentObjectsStillExist, match="view report depends on table"):
        session.value("pgqueue_step_maintain", days_ahead=0, days_kept=3)


def test_a_day_of_steps_that_cannot_be_made_keeps_no_other_one(connect: Connect) -> None:
    session = connect(autocommit=False)
    session.set_clock(NOON)
    session.create(task="t")
    session.value("pgqueue_step_record", **token(session.take(tasks=True)), name="one")
    session.rows("create type pgqueue_step_20231115 as enum ('taken')")
    assert session.value("pgqueue_step_maintain", days_ahead=2) == 2
    assert step_days(session) == ["pgqueue_step_20231114", "pgqueue_step_20231116"]
    with pytest.raises(psycopg.errors.DuplicateObject, match="pgqueue_step_20231115"):
        session.value("pgqueue_step_maintain", days_ahead=2)


def test_a_day_of_steps_that_somebody_has_detached_is_told(connect: Connect) -> None:
    session = connect(autocommit=False)
    session.set_clock(NOON)
    session.value("pgqueue_step_partition", day="2023-11-14")
    session.rows("alter table pgqueue_step detach partition pgqueue_step_20231114")
    session.create(task="t")
    session.value("pgqueue_step_record", **token(session.take(tasks=True)), name="one")
    with pytest.raises(psycopg.errors.DuplicateTable, match="pgqueue_step_20231114 is there, and no partition"):
        session.value("pgqueue_step_maintain", days_ahead=0)


def step_days(session: Session) -> list[str]:
    return session.column("select relname from pg_class where relname ~ '^pgqueue_step_[0-9]{8}$' order by 1")


@pytest.mark.parametrize("name", ["paid", "the payment"])
@pytest.mark.parametrize("settled", [False, True], ids=["still waits", "is ready"])
def test_retention_keeps_an_event_that_its_waiter_has_not_read(in_2023: Session, settled: bool, name: str) -> None:
    session = in_2023
    session.create(task="t")
    held = token(session.take(tasks=True))
    session.value("pgqueue_message_suspend", **held, name=name, kind="event", event="paid")
    session.value("pgqueue_event_emit", name="paid")
    session.value("pgqueue_event_emit", name="nobody waits")
    if settled:
        session.value("pgqueue_message_settle")
    session.set_clock(NOON + 5 * DAY_MS)
    while session.value("pgqueue_step_maintain", days_ahead=0, days_kept=3):
        pass
    assert session.column("select name from pgqueue_event") == ["paid"]
    if not settled:
        session.value("pgqueue_message_settle")
    held = token(session.take(tasks=True))
    assert session.value("pgqueue_step_record", **held, name=name, result={}, kind="event")
    while session.value("pgqueue_step_maintain", days_ahead=0, days_kept=3):
        pass
    assert session.column("select name from pgqueue_event") == []


@pytest.mark.parametrize("how", ["postponed", "parked"])
def test_retention_keeps_an_event_whose_waiter_was_ready_and_then_put_off(in_2023: Session, how: str) -> None:
    session = in_2023
    waiting = session.create(task="t")
    session.value("pgqueue_message_suspend", **token(session.take(tasks=True)), kind="event", event="paid")
    session.value("pgqueue_event_emit", name="paid")
    session.value("pgqueue_message_settle")
    if how == "postponed":
        assert session.ids("pgqueue_message_reschedule", ids=[waiting], dequeue_at=NOON + 30 * DAY_MS) == [waiting]
    else:
        held = session.take(tasks=True)
        session.ids("pgqueue_message_park", **tokens([held]), reasons=["no such task"])
    session.set_clock(NOON + 5 * DAY_MS)
    while session.value("pgqueue_step_maintain", days_ahead=0, days_kept=3):
        pass
    assert session.column("select name from pgqueue_event") == ["paid"]


def test_what_nobody_can_decide_any_more_is_deleted_at_once(in_2023: Session) -> None:
    session = in_2023
    for _ in range(2):
        session.create(task="t")
        held = session.take(tasks=True)
        event = f"pgqueue:approval:{held.id}:ok"
        session.value("pgqueue_message_suspend", **token(held), name="ok", kind="approval", event=event)
    session.rows("select pgqueue_message_cancel(%s::bigint)", (held.id,))
    while session.value("pgqueue_step_maintain", days_ahead=0):
        pass
    assert session.one("select array_agg(message_id <> %s) from pgqueue_approval", (held.id,)) == [True]
    decided = session.value("pgqueue_approval_decide", message_id=held.id, name="ok", approved=True, by="ada")
    assert decided == "ended"


@pytest.mark.parametrize("days", [{"days_ahead": -1}, {"days_kept": -1}])
def test_days_that_are_no_days_are_refused(session: Session, days: dict[str, int]) -> None:
    with pytest.raises(psycopg.errors.InvalidParameterValue):
        session.value("pgqueue_step_maintain", **days)
