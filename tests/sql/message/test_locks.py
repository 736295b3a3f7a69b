"""Messages are kept by those who work on them, and taken away from consumers that went away."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import psycopg
import pytest

from tests.support.sessions import NOON, token, tokens

if TYPE_CHECKING:
    from tests.support.fixtures.sessions import Connect
    from tests.support.sessions import Session

MINUTE = 60_000


# pgqueue_message_keep: a transaction keeps a message


@pytest.fixture
def other(connect: Connect) -> Session:
    session = connect()
    session.rows("set lock_timeout = '2s'")
    session.set_clock(NOON)
    session.create(max_attempts=5)
    return session


def test_a_kept_message_is_not_taken_over_and_can_be_ended(strict: Session, other: Session) -> None:
    held = other.take(worker="w1")
    assert strict.value("pgqueue_message_keep", **token(held)) is True
    other.set_clock(NOON + 100 * MINUTE)
    assert other.dequeue() == []
    assert strict.value("pgqueue_message_complete", **token(held)) is True
    strict.commit()
    assert [end.status for end in other.history()] == ["succeeded"]


def test_after_the_transaction_others_take_the_message_over(strict: Session, other: Session) -> None:
    held = other.take(worker="w1")
    strict.value("pgqueue_message_keep", **token(held))
    other.set_clock(NOON + MINUTE)
    assert other.dequeue() == []
    strict.rollback()
    assert other.take(worker="w2").id == held.id
    assert [end.status for end in other.history()] == ["lost"]


def test_a_request_to_cancel_passes_and_the_message_cannot_be_ended(strict: Session, other: Session) -> None:
    held = other.take(worker="w1")
    strict.value("pgqueue_message_keep", **token(held))
    assert other.ids("pgqueue_message_request_cancel", ids=[held.id]) == [held.id]
    with pytest.raises(psycopg.errors.SerializationFailure):
        strict.value("pgqueue_message_complete", **token(held))


def test_changes_before_the_call_do_not_matter(strict: Session, other: Session) -> None:
    held = other.take(worker="w1")
    other.value("pgqueue_message_heartbeat", **token(held))
    strict.value("pgqueue_message_keep", **token(held))
    assert strict.value("pgqueue_message_complete", **token(held)) is True


@pytest.mark.parametrize("change", [{"id": 0}, {"attempt": 2}, {"worker": "w2"}, {"worker": None}], ids=str)
def test_a_worker_that_does_not_hold_the_message_cannot_keep_it(other: Session, change: dict[str, Any]) -> None:
    assert other.value("pgqueue_message_keep", **{**token(other.take(worker="w1")), **change}) is False


def test_without_a_worker_name_the_session_is_the_holder(other: Session) -> None:
    held = token(other.take())
    assert other.value("pgqueue_message_keep", id=held["id"], attempt=held["attempt"]) is True


def test_a_message_released_meanwhile_cannot_be_ended(strict: Session, other: Session) -> None:
    held = other.take(worker="w1")
    strict.value("pgqueue_message_keep", **token(held))
    assert other.ids("pgqueue_message_release", **tokens([held])) == [held.id]
    with pytest.raises(psycopg.errors.SerializationFailure):
        strict.value("pgqueue_message_complete", **token(held))
    strict.rollback()
    assert strict.value("pgqueue_message_keep", **token(held)) is False


# pgqueue_message_expire: messages are taken away from consumers that went away


def die_holding(session: Session, message_id: int, attempts: int = 1) -> int:
    """Lets the message be held, again and again, by consumers that die; answers how often it was given out."""
    for held in range(attempts):
        session.set_clock(session.one("select greatest(pgqueue_now(), %s)", [NOON]))
        if not [m for m in session.dequeue(worker=f"dead {held}") if m.id == message_id]:
            return held
        session.set_clock(session.one("select pgqueue_now()") + MINUTE)
    return attempts


def test_a_lost_attempt_is_recorded_and_its_message_is_ready_again(session: Session) -> None:
    session.set_clock(NOON)
    message_id = session.create({"n": 1}, dequeue_at=NOON - 5)
    held = session.take(worker="dead")
    session.set_clock(NOON + MINUTE)

    assert session.value("pgqueue_message_expire") == 1

    message = session.message(message_id)
    assert (message.unlock_at, message.locked_at, message.worker) == (None, None, None)
    assert (message.attempt, message.dequeue_at, message.content) == (1, NOON - 5, {"n": 1})
    [end] = session.history(message_id)
    assert (end.status, end.final, end.attempt, end.worker, end.content) == ("lost", False, 1, "dead", None)
    assert (end.started_at, end.finished_at.timestamp() * 1000) == (held.locked_at, NOON + MINUTE)


def test_the_reason_names_the_worker_and_the_time(session: Session) -> None:
    session.rows("set timezone = 'Asia/Tokyo'")
    session.set_clock(NOON)
    message_id = session.create()
    session.take(worker="host-7")
    session.set_clock(NOON + MINUTE)
    session.value("pgqueue_message_expire")
    [end] = session.history(message_id)
    assert end.error_class == "django_pgqueue.exceptions.AttemptLost"
    assert end.error_message == "the lock of worker host-7 ran out at 2023-11-14 22:14:20 UTC (attempt 1 of 5)"
    assert session.message(message_id).last_error == end.error_message


@pytest.mark.parametrize(("max_attempts", "given_out"), [(1, 1), (2, 2), (7, 7)])
def test_beyond_max_attempts_the_message_fails(session: Session, max_attempts: int, given_out: int) -> None:
    message_id = session.create({"n": 1}, max_attempts=max_attempts)
    assert die_holding(session, message_id, attempts=10) == given_out
    assert session.message(message_id) is None
    ends = session.history(message_id)
    assert [end.status for end in ends] == ["lost"] * (given_out - 1) + ["failed"]
    assert [end.content for end in ends] == [None] * (given_out - 1) + [{"n": 1}]
    assert [end.final for end in ends] == [False] * (given_out - 1) + [True]


def test_without_max_attempts_a_message_gets_five_attempts(session: Session) -> None:
    message_id = session.create(max_attempts=None)
    assert die_holding(session, message_id, attempts=10) == 5
    assert [end.status for end in session.history(message_id)] == ["lost"] * 4 + ["failed"]


@pytest.mark.parametrize("max_attempts", [None, 5])
def test_deferring_uses_no_attempts(session: Session, max_attempts: int | None) -> None:
    message_id = session.create(max_attempts=max_attempts)
    for _ in range(20):
        session.value("pgqueue_message_defer", **token(session.take()))
    assert die_holding(session, message_id, attempts=10) == 5
    assert [end.status for end in session.history(message_id)] == ["deferred"] * 20 + ["lost"] * 4 + ["failed"]


def test_the_oldest_expired_locks_come_first_up_to_the_limit(session: Session) -> None:
    ids = session.create_batch(5)
    for lock_ms in (500, 400, 300, 200, 100):
        session.set_clock(NOON * 2)
        session.take(lock_ms=lock_ms)
    session.set_clock(NOON * 2 + MINUTE)
    assert session.value("pgqueue_message_expire", limit=2) == 2
    assert [message.id for message in session.messages() if message.worker is None] == ids[3:]
    assert [end.message_id for end in session.history()] == [ids[4], ids[3]]
    assert session.value("pgqueue_message_expire") == 3


def test_it_waits_for_no_row_lock(connect: Connect) -> None:
    first, second = connect(autocommit=False), connect()
    ids = second.create_batch(3)
    second.dequeue(3, lock_ms=1)
    first.rows("select from pgqueue_message where id = %s for update", [ids[1]])
    second.rows("set lock_timeout = '1s'")
    second.set_clock(second.one("select pgqueue_now() + 1000"))
    assert second.value("pgqueue_message_expire") == 2
    first.rollback()
    assert second.value("pgqueue_message_expire") == 1
    *together, last = [end.message_id for end in second.history()]
    assert (sorted(together), last) == ([ids[0], ids[2]], ids[1])


def test_an_uncommitted_heartbeat_in_time_is_respected(connect: Connect) -> None:
    holder, other = connect(autocommit=False), connect()
    other.create()
    held = other.take(worker="slow", lock_ms=1000)
    assert holder.value("pgqueue_message_heartbeat", **token(held)) is True
    other.set_clock(other.one("select pgqueue_now() + 2000"))
    assert other.value("pgqueue_message_expire") == 0
    holder.commit()
    assert other.value("pgqueue_message_expire") == 0
    assert other.history() == []
