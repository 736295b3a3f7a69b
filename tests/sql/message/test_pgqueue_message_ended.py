"""Ends of messages are noted where others wait for them."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.sql.message.test_pgqueue_message_create_after import create_after
from tests.sql.message.test_pgqueue_message_settle import confirm, wait_for
from tests.sql.words import see
from tests.support.cost import cost
from tests.support.sessions import NOON, Listener, token

if TYPE_CHECKING:
    from tests.support.fixtures.sessions import Connect
    from tests.support.sessions import Session


def told(session: Session) -> list[int]:
    ids: list[int] = session.column("select message_id from pgqueue_ended order by id")
    return ids


@pytest.mark.parametrize("end", ["complete", "fail", "defer", "cancel", "expire", "stop", "delete"])
def test_every_end_of_a_message_releases_those_that_wait_for_it(connect: Connect, end: str) -> None:
    """By the next claim, which nobody has told anything."""
    session = connect()
    session.set_clock(NOON)
    first = session.create("first", max_attempts=1)
    waiting = create_after(session, first)
    confirm(session)
    assert session.message(waiting).check_at is None, "nobody looks any more"
    match end:
        case "complete" | "fail" | "defer":
            error = {} if end == "complete" else {"error": {"message": "no"}}
            session.value(f"pgqueue_message_{end}", **token(session.take()), **error)
        case "cancel":
            session.value("pgqueue_message_cancel", id=first)
        case "expire":
            session.take()
            session.set_clock(NOON + 100_000)
        case "stop":
            held = session.take()
            session.ids("pgqueue_message_request_cancel", ids=[first])
            session.value("pgqueue_message_cancel", **token(held))
        case _:
            session.rows("delete from pgqueue_message where id = %s", [first])
    for _ in range(2):  # what a claim itself ends is released by the next one
        taken = session.dequeue(10)
        if taken:
            break
    assert [message.id for message in taken] == [waiting]


def test_an_end_in_an_old_snapshot_is_recorded(connect: Connect) -> None:
    """A transaction of repeatable read does not see who has come to wait since it began."""
    session, other = connect(), connect(autocommit=False)
    first = session.create("first")
    held = session.take()
    other.rows("set transaction isolation level repeatable read")
    other.one("select count(*) from pgqueue_message")
    waiting = create_after(session, first)
    confirm(session)
    other.value("pgqueue_message_complete", **token(held))
    other.commit()
    assert session.take().id == waiting


def test_an_end_in_an_old_snapshot_wakes_all_resting_workers(connect: Connect) -> None:
    """They look at what was recorded, and would not before the next poll."""
    session, other = connect(), connect(autocommit=False)
    listener = Listener(connect(), "pgqueue_rests", "pgqueue_awake")
    for name in ("rests", "awake"):
        session.rows("insert into pgqueue_worker (id, hostname, pid, slots) values (%s, 'h', 1, 1)", [name])
    session.rows("update pgqueue_worker set silent_until = pgqueue_now() + 60000 where id = 'rests'")
    first = session.create("first", queue="mail")
    create_after(session, first)
    other.rows("set transaction isolation level repeatable read")
    other.rows("delete from pgqueue_message where id = %s", [first])
    other.commit()
    assert listener.heard(session) == [("pgqueue_rests", "mail")]


def test_ends_of_a_batch_search_once_for_waiting_messages(connect: Connect) -> None:
    session = connect()
    wait_for(session, 5000, "2000000 + n")
    ids = session.create_batch(1000)
    each = cost(
        session,
        f"select count(*) from pgqueue_message_cancel(array(select generate_series({ids[0]}::bigint, {ids[-1]})))",
    )
    assert each.scans["pgqueue_message_awaited_ix"] <= 2, each  # PostgreSQL 15 counts two


def test_only_ends_that_a_message_waits_for_are_recorded(session: Session) -> None:
    ids = session.create_batch(5)
    create_after(session, ids[1])
    create_after(session, ids[3])
    session.value("pgqueue_message_cancel", id=ids[2])
    assert told(session) == []
    session.ids("pgqueue_message_cancel", ids=ids)
    assert told(session) == [ids[1], ids[3]]


def test_an_end_that_is_rolled_back_is_not_recorded(connect: Connect) -> None:
    session, other = connect(), connect(autocommit=False)
    first = session.create("first")
    waiting = create_after(session, first)
    other.value("pgqueue_message_cancel", id=first)
    other.rollback()
    assert told(session) == []
    assert session.value("pgqueue_message_settle") == 0
    assert session.message(waiting).after_ids == [first]


def test_a_sleeping_worker_is_woken_when_an_end_releases_something(connect: Connect) -> None:
    producer, listener = connect(), Listener(connect(), "pgqueue_a")
    first, other = producer.create(queue="other"), producer.create(queue="other")
    create_after(producer, first, queue="mail")
    see(producer, "a", asleep_ms=60_000, tasks=False)
    producer.value("pgqueue_message_cancel", id=other)
    assert listener.heard(producer) == []
    producer.value("pgqueue_message_cancel", id=first)
    assert listener.heard(producer) == [("pgqueue_a", "mail")]
