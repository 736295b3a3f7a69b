"""Messages that wait for others are released when those have left the queue."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

import pytest

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


def test_no_more_than_the_limit_are_looked_at(session: Session) -> None:
    for _ in range(5):
        create_after(session, 2**62)
    assert [session.value("pgqueue_message_settle", limit=2) for _ in range(4)] == [2, 2, 1, 0]


def test_a_sleeping_worker_is_woken_for_what_became_ready(connect: Connect) -> None:
    producer, listener = connect(), Listener(connect(), "pgqueue_a")
    create_after(producer, 2**62, queue="mail")
    see(producer, "a", asleep_ms=60_000)
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
