"""Slots of schedules that were deleted do not stay for ever."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from tests.sql.schedule.test_pgqueue_schedule_fire import HOUR, fire, make, no_slots, used
from tests.support.cost import cost
from tests.support.sessions import NOON, concurrently

if TYPE_CHECKING:
    from tests.support.fixtures.sessions import Connect
    from tests.support.sessions import Session

__all__ = ["no_slots"]  # a fixture


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
