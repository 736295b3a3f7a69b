"""A look at a message that waits for others.  When it happens: see test_pgqueue_message_settle.py."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.sql.message.test_pgqueue_message_create_after import create_after
from tests.sql.message.test_pgqueue_message_settle import confirm
from tests.support.cost import cost
from tests.support.sessions import NOON, token, tokens

if TYPE_CHECKING:
    from tests.support.fixtures.sessions import Connect
    from tests.support.sessions import Session


@pytest.mark.parametrize("policy", ["finished", "succeeded"])
def test_a_check_of_a_message_that_waits_for_many_is_cheap(connect: Connect, policy: str) -> None:
    """Each of the others is probed once in all, a part of them at a look; the next claims go on."""
    session = connect()
    count = 20_000
    ids = session.create_batch(count)
    waiting = create_after(session, *ids, policy=policy)
    confirm(session)
    session.rows("delete from pgqueue_message where id = %s", [ids[-1]])
    assert cost(session, "select pgqueue_message_settle()").scans["pgqueue_message_pkey"] < 10
    session.rows("delete from pgqueue_message where id <> %s", [waiting])
    looks = 0
    while not session.dequeue(1):
        looks += 1
        each = cost(session, "select count(*) from pgqueue_message_dequeue()")
        assert each.scans.get("pgqueue_message_pkey", 0) < 2100, each
        assert looks < 50
    assert looks >= count / 2000 - 1


def test_a_failure_among_many_is_found(session: Session) -> None:
    ids = session.create_batch(5000)
    waiting = create_after(session, *ids, policy="succeeded")
    session.value("pgqueue_message_fail", **token(session.take()))
    session.rows("delete from pgqueue_message where id <> %s", [waiting])
    for _ in range(10):
        assert not session.dequeue(1)
    [end] = session.history(waiting)
    assert end.error_message == f"message {ids[0]} had to succeed first, but did not"


def test_a_message_that_waits_for_the_least_of_all_ids_stops_nobody(session: Session) -> None:
    waiting = [create_after(session, *ids) for ids in ([-(2**63)], [-(2**63), 1 - 2**63])]
    assert session.value("pgqueue_message_settle") == 2
    assert sorted(message.id for message in session.dequeue(5)) == waiting


def test_a_look_does_not_wait_for_who_has_prolonged_and_ended_the_awaited_message(connect: Connect) -> None:
    session, busy = connect(), connect(autocommit=False)
    session.create()
    held = session.take()
    waiting = session.value("pgqueue_message_create_after", content="x", after_ids=[held.id])
    busy.ids("pgqueue_message_heartbeat", **tokens([held]))
    busy.value("pgqueue_message_complete", **token(held))
    session.rows("set lock_timeout = '1s'")
    assert session.value("pgqueue_message_settle") == 0
    busy.commit()
    assert session.take().id == waiting


@pytest.mark.parametrize("channel", ["acme", None])
def test_a_look_hides_the_awaited_message_from_no_claim(connect: Connect, channel: str | None) -> None:
    session, busy = connect(), connect(autocommit=False)
    first, _ = (session.value("pgqueue_message_create", content="x", channel=channel) for _ in range(2))
    create_after(session, first)
    session.rows("update pgqueue_message set check_at = 0 where check_at is not null")
    assert busy.value("pgqueue_message_settle") == 0
    assert session.take().id == first
    busy.commit()


@pytest.mark.parametrize("ends", ["pgqueue_message_defer", "pgqueue_message_lose"])
def test_a_message_whose_time_out_came_first_waits_for_nobody(connect: Connect, ends: str) -> None:
    """What another one does later changes neither the time of its retry nor its quarantine."""
    session = connect()
    child, parent = session.create(priority=-1), session.create(task="t")
    held = session.take(tasks=True)
    assert session.value("pgqueue_message_suspend", **token(held), until=0, after_ids=[child]) == "suspended"
    confirm(session)
    held = session.take(tasks=True)
    if ends == "pgqueue_message_defer":
        session.value(ends, **token(held), dequeue_at=NOON * 2, error={"class": "E"})
    else:
        session.rows("select pgqueue_message_lose(m, 'it died', true) from pgqueue_message m where id = %s", [parent])
    before = session.message(parent)
    session.value("pgqueue_message_complete", **token(session.take()))
    assert session.value("pgqueue_message_settle") == 0
    after = session.message(parent)
    assert (after.dequeue_at, after.in_line, after.alone_at) == (before.dequeue_at, False, before.alone_at)
    assert (after.after_ids, after.awaited_id) == (None, None)
