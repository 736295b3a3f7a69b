"""A schedule that a project's code declares: made once, changed with the code."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

import psycopg
import pytest

from tests.sql.words import see
from tests.support.cost import cost
from tests.support.sessions import NOON, concurrently

if TYPE_CHECKING:
    from tests.support.fixtures.sessions import Connect
    from tests.support.sessions import Session

HOUR = 3_600_000
SAID: dict[str, Any] = {
    "task": "shop.tasks.report",
    "cron": "0 9 * * *",
    "timezone": "Europe/Berlin",
    "catch_up": "all",
    "queue": "mail",
    "priority": 7,
    "max_attempts": 3,
}


def declare(session: Session, name: str = "report", *, args: Any = (), **parameters: Any) -> bool:
    given = {"task": "shop.tasks.report", "next_at": NOON, "content": {"args": list(args), "kwargs": {}}, **parameters}
    if "cron" not in given:
        given.setdefault("interval_ms", HOUR)
    declared: bool = session.value("pgqueue_schedule_declare", name=name, **given)
    return declared


def schedule(session: Session, name: str = "report") -> Any:
    [found] = session.rows("select * from pgqueue_schedule where name = %s", [name])
    return found


def test_a_schedule_is_a_row_with_all_given_values(session: Session) -> None:
    declare(session, args=["x"], **SAID)
    row = schedule(session)
    assert {name: getattr(row, name) for name in SAID} == SAID
    assert (row.next_at, row.interval_ms, row.paused_at, row.declared) == (NOON, None, None, True)
    assert row.content == {"args": ["x"], "kwargs": {}}


def test_the_defaults_are_those_of_a_plain_task(session: Session) -> None:
    session.call("pgqueue_schedule_declare", name="report", task="shop.tasks.report", next_at=NOON, interval_ms=HOUR)
    row = schedule(session)
    assert (row.timezone, row.catch_up, row.queue, row.priority, row.max_attempts) == ("UTC", "one", "default", 0, None)
    assert row.content == {"args": [], "kwargs": {}}


@pytest.mark.parametrize(
    "change",
    [
        {"task": "shop.tasks.other"},
        {"catch_up": "skip"},
        {"content": {"args": [1], "kwargs": {}}},
        {"queue": "maps"},
        {"priority": -1},
        {"max_attempts": None},
    ],
    ids=lambda change: next(iter(change)),
)
def test_values_beside_the_rule_change_without_moving_the_next_slot(session: Session, change: dict[str, Any]) -> None:
    declare(session, **SAID)
    before = schedule(session)
    declare(session, **{**SAID, **change, "next_at": NOON + HOUR})
    assert schedule(session) == before._replace(**change)


@pytest.mark.parametrize(
    "change", [{"cron": "5 9 * * *"}, {"timezone": "UTC"}, {"cron": None, "interval_ms": HOUR}], ids=str
)
def test_a_new_rule_moves_the_next_slot(session: Session, change: dict[str, Any]) -> None:
    session.set_clock(NOON - 1)
    declare(session, **SAID)
    before = schedule(session)
    assert declare(session, **{**SAID, **change, "next_at": NOON + HOUR})
    assert schedule(session) == before._replace(**change, next_at=NOON + HOUR)


def test_slots_due_by_the_old_rule_come_first(session: Session) -> None:
    session.set_clock(NOON)
    declare(session, **SAID)
    before = schedule(session)
    change = {"cron": None, "interval_ms": HOUR, "catch_up": "one", "queue": "maps"}
    for _ in range(2):
        assert declare(session, **{**SAID, **change, "next_at": NOON + HOUR}) is False
        assert schedule(session) == before._replace(queue="maps"), "the rest need not wait"
    session.set_clock(NOON - 1)
    assert declare(session, **{**SAID, **change, "next_at": NOON + HOUR}) is True
    assert schedule(session) == before._replace(**change, next_at=NOON + HOUR)


def test_the_declaration_of_a_living_worker_keeps_the_schedule(session: Session) -> None:
    session.set_clock(NOON)
    for worker in ("old", "new"):
        see(session, worker)
    declare(session, worker="old", next_at=NOON + HOUR)
    before = schedule(session)
    for _ in range(2):
        assert declare(session, worker="new", task="shop.tasks.other") is False
        assert declare(session, task="shop.tasks.other") is False, "who is no worker has no better right"
        assert declare(session, worker="old") is True
        assert schedule(session) == before
    session.value("pgqueue_worker_gone", id="old")
    assert declare(session, worker="new", task="shop.tasks.other") is True
    see(session, "old")
    assert declare(session, worker="old") is False


def test_a_worker_with_new_code_changes_its_own_declaration(session: Session) -> None:
    session.set_clock(NOON)
    see(session, "one")
    declare(session, worker="one", next_at=NOON + HOUR)
    assert declare(session, worker="one", task="shop.tasks.other") is True
    assert schedule(session).task == "shop.tasks.other"


def test_declaring_a_known_rule_does_not_move_the_next_slot(session: Session) -> None:
    """It may be in the past: a worker that starts must not jump over what was missed."""
    declare(session, next_at=NOON - 5 * HOUR)
    declare(session, next_at=NOON)
    assert schedule(session).next_at == NOON - 5 * HOUR


def test_a_paused_schedule_stays_paused(session: Session) -> None:
    declare(session)
    session.rows("update pgqueue_schedule set paused_at = now()")
    declare(session, interval_ms=2 * HOUR)
    assert schedule(session).paused_at is not None


def test_a_schedule_made_by_hand_becomes_declared(session: Session) -> None:
    session.rows(
        "insert into pgqueue_schedule (name, task, next_at, interval_ms) values ('report', 'shop.tasks.report', 5, %s)",
        [HOUR],
    )
    assert not schedule(session).declared
    declare(session)
    assert (schedule(session).declared, schedule(session).next_at) == (True, 5)


def test_an_unchanged_declaration_writes_nothing(session: Session) -> None:
    declare(session, **SAID)
    before = session.one("select ctid from pgqueue_schedule")
    declare(session, **SAID)
    assert session.one("select ctid from pgqueue_schedule") == before


def test_eight_concurrent_declarations_make_one_schedule(connect: Connect) -> None:
    sessions = [connect() for _ in range(8)]
    for number in range(10):
        concurrently([partial(declare, each, f"report {number}") for each in sessions])
    assert sessions[0].one("select count(*) from pgqueue_schedule") == 10


@pytest.mark.parametrize(
    ("wrong", "constraint"),
    [
        ({"cron": "* * * * *", "interval_ms": 5}, "pgqueue_schedule_one_rule"),
        ({"cron": None}, "pgqueue_schedule_one_rule"),
        ({"interval_ms": 0}, "pgqueue_schedule_interval_positive"),
        ({"priority": 101}, "pgqueue_schedule_priority_range"),
        ({"catch_up": "never"}, "pgqueue_schedule_catch_up_known"),
    ],
    ids=str,
)
def test_an_invalid_schedule_is_refused(session: Session, wrong: dict[str, Any], constraint: str) -> None:
    with pytest.raises(psycopg.errors.CheckViolation, match=constraint):
        declare(session, **wrong)


def test_a_schedule_is_found_by_its_name_among_thousands(connect: Connect) -> None:
    session = connect()
    call = "select pgqueue_schedule_declare('report 7', 'shop.tasks.report', 5, p_interval_ms => 9)"
    session.rows("""
        insert into pgqueue_schedule (name, task, next_at, interval_ms)
        select 'report ' || n, 'shop.tasks.report', 0, 5 from generate_series(1, 5000) as n
    """)
    each = cost(session, call)
    assert each.read <= {"pgqueue_schedule_pkey"}, each
    assert each.buffers < 40, each
