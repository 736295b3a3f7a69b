"""Messages of a dead worker are ended at once: only those it had begun are lost, only those that ran are to blame."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tests.sql.words import died, see
from tests.support.sessions import NOON, token

if TYPE_CHECKING:
    from tests.support.fixtures.sessions import Connect
    from tests.support.sessions import Session


def test_claimed_messages_of_a_dead_worker_return_unchanged(session: Session) -> None:
    session.set_clock(NOON)
    ids = session.create_batch(4, task="t", max_attempts=1, dequeue_at=NOON - 5)
    before = session.messages()
    session.dequeue(4, tasks=True, worker="dead")
    assert died(session) == 0
    assert session.messages() == before
    assert session.history() == []
    assert [m.id for m in session.dequeue(4, tasks=True)] == ids


def test_begun_messages_are_lost_and_running_ones_are_quarantined(session: Session) -> None:
    session.set_clock(NOON)
    session.create_batch(3, task="t", dequeue_at=NOON - 5)
    ran, over, claimed = session.dequeue(3, tasks=True, worker="dead")
    assert died(session, running=[ran], ended=[over]) == 2
    now = {m.id: m for m in session.messages()}
    assert (now[ran.id].lost, now[ran.id].alone_at) == (1, NOON - 5)
    assert (now[over.id].lost, now[over.id].alone_at) == (1, None)
    assert (now[claimed.id].lost, now[claimed.id].attempt) == (0, 0)
    assert {end.message_id: end.status for end in session.history()} == {ran.id: "lost", over.id: "lost"}
    assert session.history()[0].error_message == "worker dead died while it ran (loss 1 of 20)"


def test_a_message_of_unknown_running_state_counts_as_running(session: Session) -> None:
    session.create(task="t")
    held = session.take(tasks=True, worker="dead")
    assert session.value("pgqueue_worker_died", worker="dead", ids=[held.id], attempts=[1], running=None) == 1
    [message] = session.messages()
    assert message.alone_at is not None


def test_a_second_call_finds_nothing(session: Session) -> None:
    session.create_batch(2, task="t")
    held = session.dequeue(2, tasks=True, worker="dead")
    died(session, running=held[:1])
    before, history = session.messages(), session.history()
    assert died(session, running=held) == 0
    assert (session.messages(), session.history()) == (before, history)


def test_a_late_call_ignores_messages_that_others_took_over(session: Session) -> None:
    session.set_clock(NOON)
    session.create(task="t")
    held = session.take(tasks=True, worker="dead")
    session.set_clock(held.unlock_at)
    other = session.take(tasks=True, worker="living")
    assert other.id == held.id
    assert died(session, running=[held]) == 0
    assert session.value("pgqueue_message_complete", **token(other)) is True


def test_an_older_attempt_is_not_confused_with_the_held_one(session: Session) -> None:
    session.create(task="t")
    first = session.take(tasks=True, worker="dead")
    session.call("pgqueue_message_defer", **token(first))
    session.take(tasks=True, worker="dead")
    assert died(session, ended=[first]) == 0
    [message] = session.messages()
    assert (message.attempt, message.lost, message.worker) == (1, 0, None)


def test_messages_that_the_worker_ended_stay_ended(session: Session) -> None:
    session.create(task="t")
    held = session.take(tasks=True, worker="dead")
    session.call("pgqueue_message_complete", **token(held))
    assert died(session, ended=[held]) == 0
    assert [end.status for end in session.history()] == ["succeeded"]


def test_it_waits_for_no_row_lock(connect: Connect) -> None:
    other, session = connect(autocommit=False), connect()
    see(session, "dead")
    first, second = session.create_batch(2, task="t")
    session.dequeue(2, tasks=True, worker="dead")
    other.rows("select from pgqueue_message where id = %s for update", [first])
    other.rows("select from pgqueue_worker for update")
    session.rows("set lock_timeout = '1s'")
    died(session)
    assert [m.id for m in session.messages() if m.worker is None] == [second]
    other.rollback()
    died(session)
    assert [m.id for m in session.messages() if m.worker is None] == [first, second]
    assert session.column("select id from pgqueue_worker") == []


def test_it_deletes_the_row_of_the_worker(session: Session) -> None:
    for name in ("dead", "living"):
        see(session, name)
    died(session)
    assert session.column("select id from pgqueue_worker") == ["living"]


def test_a_message_that_was_quarantined_and_only_claimed_stays_quarantined(session: Session) -> None:
    session.set_clock(NOON)
    session.create(task="t", dequeue_at=NOON - 5)
    died(session, running=[session.take(tasks=True, worker="dead")])
    [before] = session.messages()
    session.call("pgqueue_quarantine_dequeue", worker="alone")
    assert died(session, "alone") == 0
    assert session.messages() == [before]
