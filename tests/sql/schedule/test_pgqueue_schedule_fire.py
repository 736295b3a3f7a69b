"""Slots become messages: each at most once, whoever fires it and however many at a time."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

import pytest
from psycopg import errors

from tests.sql.words import see
from tests.support.cost import cost
from tests.support.sessions import NOON, Listener, concurrently

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.support.fixtures.sessions import Connect
    from tests.support.sessions import Session

HOUR, DAY = 3_600_000, 86_400_000
SLOTS_INDEX, SCHEDULES_INDEX = "pgqueue_schedule_slot_pkey", "pgqueue_schedule_pkey"


# pgqueue_schedule_fire: slots become messages: each at most once, whoever fires it and however many at a time


@pytest.fixture(autouse=True)
def no_slots(conninfo: str, connect: Connect) -> Iterator[None]:
    connect().rows("delete from pgqueue_schedule_slot")
    yield
    connect().rows("delete from pgqueue_schedule_slot")


def make(session: Session, name: str = "report", **parameters: Any) -> None:
    given = {"task": "shop.tasks.report", "next_at": NOON, "interval_ms": HOUR, **parameters}
    session.call("pgqueue_schedule_declare", name=name, **given)


def fire(
    session: Session, *slots: int, name: str = "report", expected: int = NOON, then: int = NOON + HOUR, **key: Any
) -> list[int]:
    return session.ids("pgqueue_schedule_fire", name=name, slots=list(slots), expected_at=expected, next_at=then, **key)


def next_at(session: Session, name: str = "report") -> int:
    found: int = session.one("select next_at from pgqueue_schedule where name = %s", [name])
    return found


def used(session: Session) -> list[tuple[int, int | None]]:
    """The slots that have been used, and their messages."""
    return [tuple(row) for row in session.rows("select slot_at, message_id from pgqueue_schedule_slot order by 1")]


def test_each_slot_becomes_a_message_with_the_values_of_the_schedule(session: Session) -> None:
    session.set_clock(NOON + 5)
    make(session, content={"args": [1], "kwargs": {}}, queue="mail", priority=7, max_attempts=3)
    ids = fire(session, NOON - HOUR, NOON)
    messages = session.messages()
    assert [message.id for message in messages] == ids
    assert [message.dequeue_at for message in messages] == [NOON + 5, NOON + 5]
    for message, slot in zip(messages, [NOON - HOUR, NOON], strict=True):
        assert (message.task, message.queue, message.priority) == ("shop.tasks.report", "mail", 7)
        assert (message.max_attempts, message.attempt) == (3, 0)
        assert message.content == {"args": [1], "kwargs": {}}
        assert message.headers == {"schedule": "report", "slot": slot}
    assert used(session) == [(NOON - HOUR, ids[0]), (NOON, ids[1])]
    assert next_at(session) == NOON + HOUR


def test_messages_of_missed_slots_do_not_overtake_others(session: Session) -> None:
    session.set_clock(NOON - 5)
    fresh = session.create("fresh", queue="default")
    session.set_clock(NOON)
    make(session, queue="default", next_at=NOON - 50 * HOUR)
    ids = fire(session, *(NOON - n * HOUR for n in range(50)), expected=NOON - 50 * HOUR)
    session.rows("update pgqueue_message set task = 'shop.tasks.report' where id = %s", [fresh])
    assert [message.id for message in session.dequeue(100, tasks=True)] == [fresh, *ids]


def test_a_slot_that_lies_ahead_has_its_own_time(session: Session) -> None:
    session.set_clock(NOON - 5)
    make(session)
    fire(session, NOON)
    assert session.messages()[0].dequeue_at == NOON


def test_without_slots_only_the_next_time_changes(session: Session) -> None:
    make(session)
    assert fire(session) == []
    assert (session.messages(), next_at(session)) == ([], NOON + HOUR)


def test_a_slot_is_used_once_even_if_the_time_is_set_back(session: Session) -> None:
    make(session)
    [message_id] = fire(session, NOON)
    session.rows("update pgqueue_schedule set next_at = %s", [NOON - HOUR])
    [before] = fire(session, NOON - HOUR, NOON, expected=NOON - HOUR)
    assert used(session) == [(NOON - HOUR, before), (NOON, message_id)]
    assert next_at(session) == NOON + HOUR


def test_a_call_with_an_outdated_time_changes_nothing(session: Session) -> None:
    make(session, next_at=NOON + HOUR)
    assert fire(session, NOON) == []
    assert (session.messages(), used(session), next_at(session)) == ([], [], NOON + HOUR)


def test_paused_and_unknown_schedules_are_not_fired(session: Session) -> None:
    make(session)
    session.rows("update pgqueue_schedule set paused_at = now()")
    assert fire(session, NOON) == fire(session, NOON, name="unknown") == []
    assert (session.messages(), next_at(session)) == ([], NOON)


def test_old_slots_are_deleted(session: Session) -> None:
    make(session)
    make(session, "other")
    fire(session, NOON)
    fire(session, NOON, name="other")
    later = NOON + 90 * DAY
    fire(session, NOON + HOUR, expected=NOON + HOUR, then=later)
    fire(session, later, expected=later, then=later + 1)
    assert [slot for slot, _ in used(session)] == [NOON, NOON, NOON + HOUR, later]
    fire(session, later + 1, expected=later + 1, then=later + 2)
    assert [slot for slot, _ in used(session)] == [NOON, NOON + HOUR, later, later + 1], "one is the other's"


def test_the_last_ten_thousand_slots_of_a_short_interval_are_kept(session: Session) -> None:
    make(session, interval_ms=1000)
    fire(session, NOON)
    later = NOON + 10_000 * 1000
    fire(session, later, expected=NOON + HOUR, then=later + 1000)
    fire(session, later + 1000, expected=later + 1000, then=later + 2000)
    assert [slot for slot, _ in used(session)] == [later, later + 1000]


# Unique keys


@pytest.mark.parametrize("key", [{}, {"unique_key": "k"}])
def test_a_slot_whose_message_the_channel_refuses_is_used(session: Session, key: dict[str, Any]) -> None:
    session.call("pgqueue_channel_set", name="acme", max_size=0)
    make(session, next_at=NOON)
    assert fire(session, NOON, expected=NOON, then=NOON + HOUR, channel="acme", **key) == []
    assert used(session) == [(NOON, None)]
    assert next_at(session) == NOON + HOUR
    assert session.messages() == []


def test_with_a_key_a_slot_makes_one_message_while_the_key_is_held(session: Session) -> None:
    make(session, next_at=NOON - HOUR)
    [first] = fire(session, NOON - HOUR, NOON, expected=NOON - HOUR, then=NOON + HOUR, unique_key="k")
    assert used(session) == [(NOON - HOUR, first), (NOON, first)], "both slots count"
    assert fire(session, NOON + HOUR, expected=NOON + HOUR, then=NOON + 2 * HOUR, unique_key="k") == []
    assert next_at(session) == NOON + 2 * HOUR
    [message] = session.messages()
    assert (message.id, message.unique_key, message.headers["slot"]) == (first, "k", NOON - HOUR)
    assert message.headers == {"schedule": "report", "slot": NOON - HOUR}


@pytest.mark.parametrize(
    ("on_conflict", "content", "at", "headers"),
    [
        ("keep", "by hand", NOON + DAY, None),
        ("debounce", "by hand", NOON, None),
        ("replace", {"args": [], "kwargs": {}}, NOON, {"schedule": "report", "slot": NOON}),
    ],
)
def test_the_policy_decides_what_happens_to_a_waiting_holder_of_the_key(
    session: Session, on_conflict: str, content: Any, at: int, headers: Any
) -> None:
    session.set_clock(NOON)
    make(session)
    [row] = session.call("pgqueue_message_create_unique", unique_key="k", content="by hand", dequeue_at=NOON + DAY)
    assert fire(session, NOON, unique_key="k", on_conflict=on_conflict) == []
    [message] = session.messages()
    assert (message.id, message.content, message.dequeue_at, message.headers) == (row.p_id, content, at, headers)
    assert used(session) == [(NOON, row.p_id)]


def test_until_started_a_slot_is_enqueued_beside_the_message_that_runs(session: Session) -> None:
    make(session)
    fire(session, NOON, unique_key="k", until_started=True)
    session.take(tasks=True)
    assert len(fire(session, NOON + HOUR, expected=NOON + HOUR, unique_key="k", until_started=True)) == 1


@pytest.mark.parametrize("commits", [True, False])
def test_an_uncommitted_key_is_not_waited_for_and_the_slot_stays(connect: Connect, commits: bool) -> None:
    worker, producer = connect(), connect(autocommit=False)
    make(worker)
    producer.call("pgqueue_message_create_unique", unique_key="k", content="by hand")
    worker.rows("set statement_timeout = '5s'")
    assert fire(worker, NOON, unique_key="k") == []
    assert (used(worker), next_at(worker), worker.one("show lock_timeout")) == ([], NOON, "0")
    producer.commit() if commits else producer.rollback()
    assert len(fire(worker, NOON, unique_key="k")) == (0 if commits else 1)
    assert (len(used(worker)), next_at(worker)) == (1, NOON + HOUR)


@pytest.mark.parametrize("extreme", [-(2**63), 2**63 - 1])
def test_the_smallest_and_the_largest_time_are_times_like_others(session: Session, extreme: int) -> None:
    make(session, next_at=extreme)
    assert len(fire(session, extreme, expected=extreme)) == 1
    assert (len(used(session)), next_at(session)) == (1, NOON + HOUR)


# At the same time


def test_of_eight_concurrent_calls_one_fires_the_slot(connect: Connect) -> None:
    sessions = [connect() for _ in range(8)]
    make(sessions[0])
    for number in range(25):
        at = NOON + number * HOUR
        answers = concurrently([partial(fire, each, at, expected=at, then=at + HOUR) for each in sessions])
        assert sorted(len(ids) for ids in answers) == [0] * 7 + [1]
    messages = sessions[0].messages()
    assert [message.headers["slot"] for message in messages] == [NOON + number * HOUR for number in range(25)]
    assert used(sessions[0]) == [(message.headers["slot"], message.id) for message in messages]


def test_the_primary_key_of_the_slot_holds_without_the_row_lock(connect: Connect) -> None:
    """Each thinks that the time is still there, as if somebody had put it back in between."""
    sessions = [connect() for _ in range(8)]
    make(sessions[0])

    def put_back_and_fire(session: Session) -> list[int]:
        session.rows("update pgqueue_schedule set next_at = %s", [NOON])
        return fire(session, NOON)

    for _ in range(10):
        concurrently([partial(put_back_and_fire, each) for each in sessions])
    assert len(sessions[0].messages()) == len(used(sessions[0])) == 1


def test_a_session_does_not_wait_for_one_that_fires(connect: Connect) -> None:
    first, second = connect(autocommit=False), connect()
    make(second)
    fire(first, NOON)
    second.rows("set lock_timeout = '2s'")
    assert fire(second, NOON) == []
    first.rollback()
    assert len(fire(second, NOON)) == 1, "what was rolled back has not been fired"
    assert first.messages() == second.messages()


def test_under_stricter_isolation_a_slot_used_meanwhile_is_a_serialization_failure(
    strict: Session, connect: Connect
) -> None:
    other = connect()
    make(other)
    strict.rows("select count(*) from pgqueue_message")
    fire(other, NOON)
    with pytest.raises(errors.SerializationFailure):
        fire(strict, NOON)
    strict.rollback()
    assert fire(strict, NOON) == []


def test_a_slot_wakes_a_sleeper(connect: Connect) -> None:
    producer, listener = connect(), Listener(connect(), "pgqueue_w1")
    see(producer, "w1", queues=["mail"], asleep_ms=60_000)
    make(producer, queue="mail")
    fire(producer, NOON)
    assert listener.heard(producer) == [("pgqueue_w1", "mail")]


# What it costs


def test_the_row_the_slot_and_the_old_slots_are_found_by_their_keys(connect: Connect) -> None:
    session = connect()
    make(session, "report 7")
    call = f"select pgqueue_schedule_fire('report 7', array[{NOON}], {NOON}, {NOON + HOUR})"
    session.set_clock(NOON)
    cost(session, call)  # makes its plans for empty tables
    session.rows("""
        insert into pgqueue_schedule (name, task, next_at, interval_ms)
        select 'report ' || n, 'shop.tasks.report', 0, 5 from generate_series(1000, 5000) as n
    """)
    session.rows(
        "insert into pgqueue_schedule_slot (name, slot_at) "
        "select 'report ' || s, %s - n from generate_series(5, 9) as s, generate_series(1, 3000) as n",
        [NOON],
    )
    each = cost(session, call)
    assert each.read - {"pgqueue_worker_asleep_ix"} == {SLOTS_INDEX, SCHEDULES_INDEX}, each
    assert each.entries[SLOTS_INDEX] <= 4, each
    assert each.buffers < 80, each


# pgqueue_schedule_prune: slots of schedules that were deleted do not stay for ever


def names(session: Session) -> list[str]:
    return session.column("select distinct name from pgqueue_schedule_slot order by 1")


def test_only_slots_of_deleted_schedules_are_deleted(session: Session) -> None:
    for name in ("a", "b", "c", "d"):
        make(session, name)
        fire(session, NOON, NOON + 1, NOON + 2, name=name)
    session.rows("delete from pgqueue_schedule where name in ('a', 'c')")
    session.rows("update pgqueue_schedule set paused_at = now() where name = 'd'")
    assert session.value("pgqueue_schedule_prune") == 6
    assert names(session) == ["b", "d"]
    assert session.value("pgqueue_schedule_prune") == 0


def test_concurrent_calls_delete_each_slot_once_without_waiting(connect: Connect) -> None:
    sessions = [connect() for _ in range(6)]
    sessions[0].rows("insert into pgqueue_schedule_slot (name, slot_at) select n % 7, n from generate_series(1, 700) n")
    for session in sessions:
        session.rows("set lock_timeout = '1s'")
    assert sum(concurrently([partial(session.value, "pgqueue_schedule_prune") for session in sessions])) == 700
    assert used(sessions[0]) == []


def test_a_slot_that_is_being_fired_stays(connect: Connect) -> None:
    firing, pruning = connect(autocommit=False), connect()
    make(firing)
    fire(firing, NOON)
    assert pruning.value("pgqueue_schedule_prune") == 0
    firing.commit()
    assert pruning.value("pgqueue_schedule_prune") == 0
    assert len(used(pruning)) == 1
    assert len(fire(firing, NOON + HOUR, expected=NOON + HOUR)) == 1
    firing.rollback()


def test_declarations_of_dead_workers_are_deleted(session: Session) -> None:
    session.rows("insert into pgqueue_worker (id, pid, slots, hostname) values ('alive', 1, 1, 'h')")
    session.rows("insert into pgqueue_schedule_declaration values (1, 's', 'alive'), (1, 's', 'gone')")
    session.value("pgqueue_schedule_prune")
    assert session.column("select worker from pgqueue_schedule_declaration") == ["alive"]


def test_it_reads_one_slot_of_each_living_schedule(connect: Connect) -> None:
    session = connect()
    cost(session, "select pgqueue_schedule_prune()")  # makes its plan for empty tables
    for name in ("a", "b", "c"):
        make(session, name)
        session.rows(
            "insert into pgqueue_schedule_slot (name, slot_at) select %s, n from generate_series(1, 5000) as n", [name]
        )
    each = cost(session, "select pgqueue_schedule_prune()")
    assert each.read - {"pgqueue_schedule_declaration"} == {"pgqueue_schedule_slot_pkey", "pgqueue_schedule_pkey"}, each
    assert sum(each.entries.values()) <= 1000, each  # with what earlier tests have deleted; there are 15,000 slots
