"""Messages that wait for others are released when those have left the queue."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

import pytest

from tests.sql.cost import cost
from tests.sql.sessions import NOON, Listener, concurrently, token
from tests.sql.test_pgqueue_message_create_after import create_after
from tests.sql.test_pgqueue_worker_seen import see

if TYPE_CHECKING:
    from tests.sql.conftest import Connect
    from tests.sql.sessions import Session

ENDINGS = {
    "completed": "pgqueue_message_complete",
    "failed": "pgqueue_message_fail",
}


def test_it_is_ready_when_all_of_them_have_ended_however_they_did(session: Session) -> None:
    first, second, third = session.create("a"), session.create("b"), session.create("c")
    waiting = create_after(session, first, second, third)
    session.value("pgqueue_message_complete", **token(session.take()))
    session.value("pgqueue_message_fail", **token(session.take()))
    assert session.value("pgqueue_message_settle", force=True) == 0
    session.value("pgqueue_message_cancel", id=third)
    assert session.value("pgqueue_message_settle", force=True) == 1
    held = session.take()
    assert (held.id, held.after_ids, held.check_at, held.checks) == (waiting, None, None, None)


def test_one_that_is_tried_again_has_not_ended(session: Session) -> None:
    create_after(session, session.create())
    session.value("pgqueue_message_defer", **token(session.take()), error={"message": "no network"})
    assert session.value("pgqueue_message_settle", force=True) == 0


def test_messages_that_are_not_in_the_queue_are_not_waited_for(session: Session) -> None:
    create_after(session, 2**62)
    create_after(session)
    assert session.value("pgqueue_message_settle") == 2


@pytest.mark.parametrize(
    ("policy", "ending", "runs"),
    [
        ("finished", "completed", True),
        ("finished", "failed", True),
        ("succeeded", "completed", True),
        ("succeeded", "failed", False),
    ],
)
def test_the_policy_says_whether_a_failure_cancels_it(session: Session, policy: str, ending: str, runs: bool) -> None:
    session.set_clock(NOON)
    first = session.create("first")
    waiting = create_after(session, first, policy=policy)
    session.value(ENDINGS[ending], **token(session.take()))
    assert session.value("pgqueue_message_settle") == 1
    assert bool(session.dequeue()) is runs
    if not runs:
        [end] = session.history(waiting)
        assert (end.status, end.final, end.content, end.attempt) == ("cancelled", True, "next", 0)
        assert end.error_message == f"message {first}, which had to succeed first, did not"


def test_what_was_withdrawn_has_not_succeeded(session: Session) -> None:
    waiting = create_after(session, session.create("first"), policy="succeeded")
    session.value("pgqueue_message_cancel", id=session.messages()[0].id)
    session.value("pgqueue_message_settle")
    assert [end.status for end in session.history(waiting)] == ["cancelled"]


def test_it_is_looked_at_again_after_a_tenth_of_the_time_that_it_has_waited(session: Session) -> None:
    session.set_clock(NOON)
    session.create("first", dequeue_at=2**62)
    waiting = create_after(session, session.messages()[0].id)
    for waited_ms, again_ms in ((0, 100), (500, 100), (5000, 500), (50_000, 5000), (500_000, 10_000)):
        session.set_clock(NOON + waited_ms)
        assert session.value("pgqueue_message_settle", force=True) == 0
        assert session.message(waiting).check_at == NOON + waited_ms + again_ms


def test_what_is_not_due_for_a_look_is_not_looked_at(session: Session) -> None:
    session.set_clock(NOON)
    waiting = create_after(session, 2**62, dequeue_at=NOON + 1000)
    for force in (False, True):
        assert session.value("pgqueue_message_settle", force=force) == 0, "its own time has not come"
    session.set_clock(NOON + 1000)
    assert session.value("pgqueue_message_settle") == 1
    assert session.message(waiting).dequeue_at == NOON + 1000


def test_whoever_is_told_that_a_message_has_ended_looks_at_once_at_those_that_wait_for_it(session: Session) -> None:
    session.set_clock(NOON)
    first, other = session.create("first"), session.create("other")
    waiting = create_after(session, first)
    create_after(session, other)
    session.value("pgqueue_message_settle")
    assert session.message(waiting).awaited_id == first
    session.set_clock(NOON + 50)
    session.value("pgqueue_message_complete", **token(session.take()))
    assert session.value("pgqueue_message_settle") == 0, "its next look is not due"
    assert session.value("pgqueue_message_settle", ended_ids=[other + 99, first]) == 1
    message = session.message(waiting)
    assert (message.dequeue_at, message.awaited_id, message.check_at) == (NOON + 50, None, None)


def test_in_whatever_order_they_end_each_look_leaves_one_to_wait_for(session: Session) -> None:
    session.set_clock(NOON)
    ids = session.create_batch(5)
    waiting = create_after(session, *ids)
    session.value("pgqueue_message_settle")
    left = set(ids)
    for ended in (ids[2], ids[4], ids[0], ids[3], ids[1]):
        assert session.message(waiting).awaited_id == max(left)
        session.value("pgqueue_message_cancel", id=ended)
        left.remove(ended)
        looks = session.message(waiting).checks
        settled = session.value("pgqueue_message_settle", ended_ids=[ended])
        assert settled == (not left)
        if left:
            in_vain = ended < max(left | {ended})
            assert session.message(waiting).checks == looks + (not in_vain)


def test_a_hint_about_what_has_not_ended_does_no_harm(session: Session) -> None:
    session.set_clock(NOON)
    first = session.create("first")
    waiting = create_after(session, first)
    for _ in range(3):
        assert session.value("pgqueue_message_settle", ended_ids=[first]) == 0
    message = session.message(waiting)
    assert (message.checks, message.check_at, message.awaited_id) == (3, NOON + 100, first)


def test_its_own_time_comes_first_whatever_has_ended(session: Session) -> None:
    session.set_clock(NOON)
    first = session.create("first")
    create_after(session, first, dequeue_at=NOON + 1000)
    session.value("pgqueue_message_cancel", id=first)
    assert session.value("pgqueue_message_settle", ended_ids=[first]) == 0


def test_a_hint_waits_for_nobody_who_holds_the_waiting_message(connect: Connect) -> None:
    session, other = connect(), connect(autocommit=False)
    first = session.create("first")
    waiting = create_after(session, first)
    session.value("pgqueue_message_settle")
    other.rows("select from pgqueue_message where id = %s for update", [waiting])
    session.rows("set lock_timeout = '1s'")
    session.value("pgqueue_message_cancel", id=first)
    assert session.value("pgqueue_message_settle", ended_ids=[first]) == 0
    other.rollback()
    assert session.value("pgqueue_message_settle", ended_ids=[first]) == 1


def test_who_is_rescheduled_waits_for_nobody_any_more(session: Session) -> None:
    waiting = create_after(session, session.create("first"))
    session.value("pgqueue_message_settle")
    session.ids("pgqueue_message_reschedule", ids=[waiting])
    assert session.message(waiting).awaited_id is None


@pytest.mark.parametrize(("waiting", "most"), [(0, 10), (3000, 80)])
def test_ends_that_nobody_waits_for_cost_next_to_nothing(connect: Connect, waiting: int, most: int) -> None:
    session = connect()
    call = "pgqueue_message_settle(p_ended_ids => array(select n::bigint from generate_series(1, 2000) as n))"
    cost(session, f"select * from {call}")  # makes its plans for an empty table
    session.rows(f"""
        insert into pgqueue_message
            (dequeue_at, content, check_at, checks, after_policy, after_ids, awaited_id)
        select {2**62}, '{{}}', {2**62}, 1, 'finished', array[1000000 + n], 1000000 + n
        from generate_series(1, {waiting}) as n
    """)
    each = cost(session, f"select * from {call}")
    assert "pgqueue_message" not in each.read, each
    assert sum(each.entries.values()) <= 2, each
    assert each.buffers <= most if not waiting else each.buffers <= 2000 * 3 + most, each


def test_who_waits_is_found_among_many(connect: Connect) -> None:
    """In pgqueue_message_awaited_ix."""
    session = connect()
    call = "pgqueue_message_settle(p_ended_ids => '{1000007,1002007}')"
    cost(session, f"select * from {call}")
    session.rows(f"""
        insert into pgqueue_message
            (dequeue_at, content, check_at, checks, after_policy, after_ids, awaited_id)
        select {2**62}, '{{}}', {2**62}, 1, 'finished', array[1000000 + n], 1000000 + n
        from generate_series(1, 3000) as n
    """)
    each = cost(session, f"select * from {call}")
    assert each.entries["pgqueue_message_awaited_ix"] <= 8, each
    assert sum(each.entries.values()) <= 20, each
    assert each.buffers < 120, each


def test_no_more_than_the_limit_are_looked_at(session: Session) -> None:
    for _ in range(5):
        create_after(session, 2**62)
    assert [session.value("pgqueue_message_settle", limit=2) for _ in range(4)] == [2, 2, 1, 0]


def test_a_sleeping_worker_is_woken_for_what_became_ready(connect: Connect) -> None:
    producer, listener = connect(), Listener(connect(), "pgqueue_a")
    create_after(producer, 2**62, queue="mail")
    see(producer, "a", asleep_ms=60_000, tasks=False)
    producer.value("pgqueue_message_settle")
    assert listener.heard(producer) == [("pgqueue_a", "mail")]


def test_many_at_once_release_each_message_once_and_wait_for_nobody(connect: Connect) -> None:
    sessions = [connect() for _ in range(6)]
    for _ in range(100):
        create_after(sessions[0], 2**62, policy="succeeded")
    for session in sessions:
        session.rows("set lock_timeout = '1s'")

    def settle_all(session: Session) -> int:
        settled = 0
        while session.one("select exists (select from pgqueue_message where check_at is not null)"):
            settled += session.value("pgqueue_message_settle", limit=7)
        return settled

    assert sum(concurrently([partial(settle_all, session) for session in sessions])) == 100
    assert len(sessions[0].dequeue(200)) == 100
