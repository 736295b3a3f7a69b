"""What becomes of a message whose worker went away."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from tests.sql.lanes import drifted
from tests.support.sessions import NOON, token

if TYPE_CHECKING:
    from tests.support.sessions import Session

OUT_OF_REACH = 2**63 - 1
LOCK_MS = 60_000


def die_holding(session: Session, **parameters: Any) -> Any:
    """The next task, whose worker goes away without a word."""
    held = session.take(tasks=True, worker="gone", **parameters)
    session.set_clock(held.unlock_at)
    assert session.value("pgqueue_message_expire") == 1
    return held


def die_alone_with(session: Session) -> Any:
    [held] = session.call("pgqueue_quarantine_dequeue", worker="gone too")
    session.call("pgqueue_worker_died", worker="gone too", ids=[held.id], attempts=[held.attempt], running=[True])
    return held


def quarantined(session: Session, **columns: Any) -> int:
    """A task whose worker died while it ran."""
    message_id = session.create(**{"task": "t", **columns})
    held = session.take(tasks=True, worker="dead")
    assert held.id == message_id
    session.call("pgqueue_worker_died", worker="dead", ids=[held.id], attempts=[held.attempt], running=[True])
    return message_id


@pytest.mark.parametrize(("max_attempts", "raised"), [(1, 2), (5, 6), (None, None), (2_000_000_000, 2_000_000_000)])
def test_a_lost_attempt_of_a_task_does_not_count_for_max_attempts(
    session: Session, max_attempts: int | None, raised: int | None
) -> None:
    session.set_clock(NOON)
    message_id = session.create(task="t", max_attempts=max_attempts, dequeue_at=NOON - 5)
    die_holding(session)
    message = session.message(message_id)
    assert (message.lost, message.attempt, message.max_attempts, message.worker) == (1, 1, raised, None)
    assert (message.alone_at, message.dequeue_at) == (None, NOON - 5)
    [end] = session.history(message_id)
    assert (end.status, end.final, end.attempt, end.max_attempts) == ("lost", False, 1, max_attempts)
    assert end.error_class == "django_pgqueue.exceptions.AttemptLost"
    assert "the lock of worker gone ran out" in end.error_message
    assert "(loss 1 of 20)" in end.error_message
    assert message.last_error == end.error_message


def test_a_message_lost_twice_to_expired_locks_is_quarantined(session: Session) -> None:
    session.set_clock(NOON)
    message_id = session.create(task="t", dequeue_at=NOON - 5)
    die_holding(session)
    die_holding(session)
    message = session.message(message_id)
    assert (message.lost, message.alone_at, message.dequeue_at) == (2, NOON - 5, OUT_OF_REACH)
    assert session.dequeue(tasks=True) == []


def test_a_message_that_ran_when_its_worker_died_is_quarantined_at_once(session: Session) -> None:
    session.set_clock(NOON)
    message = session.message(quarantined(session, dequeue_at=NOON - 5))
    assert (message.lost, message.alone_at, message.dequeue_at) == (1, NOON - 5, OUT_OF_REACH)
    assert session.value("pgqueue_message_next_at", tasks=True) == OUT_OF_REACH


@pytest.mark.parametrize("max_attempts", [1, 5, None])
def test_after_twenty_losses_a_message_fails_with_that_reason(session: Session, max_attempts: int | None) -> None:
    message_id = quarantined(session, max_attempts=max_attempts, content={"n": 1})
    for _ in range(19):
        assert die_alone_with(session).id == message_id
    assert session.message(message_id) is None
    ends = session.history(message_id)
    assert [end.status for end in ends] == ["lost"] * 19 + ["failed"]
    assert [end.final for end in ends] == [False] * 19 + [True]
    assert ends[-1].error_class == "django_pgqueue.exceptions.AttemptLost"
    assert ends[-1].error_message == "worker gone too died while it ran (loss 20 of 20)"
    assert ends[-1].content == {"n": 1}


@pytest.mark.parametrize("max_lost", [1, 3, 25])
def test_a_message_may_have_a_limit_of_its_own(session: Session, max_lost: int) -> None:
    message_id = quarantined(session, max_lost=max_lost)
    for _ in range(max_lost - 1):
        assert die_alone_with(session).id == message_id
    ends = session.history(message_id)
    assert [end.status for end in ends] == ["lost"] * (max_lost - 1) + ["failed"]
    assert f"(loss {max_lost} of {max_lost})" in ends[-1].error_message


def test_an_attempt_that_ends_regularly_resets_the_count(session: Session) -> None:
    message_id = quarantined(session, max_lost=2)
    [held] = session.call("pgqueue_quarantine_dequeue", worker="w")
    session.call("pgqueue_message_defer", id=message_id, attempt=held.attempt, worker="w", error="oh")
    held = session.take(tasks=True, worker="dead")
    session.call("pgqueue_worker_died", worker="dead", ids=[held.id], attempts=[held.attempt], running=[True])
    assert session.message(message_id).lost == 1


def test_the_limit_of_a_raw_message_stays_its_max_attempts(session: Session) -> None:
    session.set_clock(NOON)
    message_id = session.create(max_attempts=2, max_lost=1)
    held = session.take(worker="gone")
    session.set_clock(held.unlock_at)
    session.call("pgqueue_message_expire")
    assert session.message(message_id).lost == 1


@pytest.mark.parametrize("error", [None, {"class": "E", "message": "no"}])
def test_an_attempt_that_ends_regularly_ends_the_quarantine(session: Session, error: Any) -> None:
    message_id = quarantined(session)
    [held] = session.call("pgqueue_quarantine_dequeue", worker="alone")
    session.call("pgqueue_message_defer", **token(held), error=error)
    message = session.message(message_id)
    assert (message.lost, message.alone_at) == (0, None)
    assert session.take(tasks=True).id == message_id


def test_losses_in_the_history_are_not_counted_as_errors(session: Session) -> None:
    message_id = quarantined(session, max_attempts=None)
    for _ in range(3):
        die_alone_with(session)
    [held] = session.call("pgqueue_quarantine_dequeue", worker="alone")
    error = {"class": "E", "message": "no"}
    assert session.value("pgqueue_message_defer", **token(held), error=error, max_attempts=2) == "retried"
    assert (
        session.value("pgqueue_message_defer", **token(session.take(tasks=True)), error=error, max_attempts=2)
        == "failed"
    )
    assert session.message(message_id) is None


def test_a_message_enqueued_again_has_the_requested_attempts(session: Session) -> None:
    message_id = quarantined(session, max_attempts=3)
    die_alone_with(session)
    [held] = session.call("pgqueue_quarantine_dequeue", worker="alone")
    session.call("pgqueue_message_fail", **token(held))
    [again] = session.ids("pgqueue_attempt_enqueue", attempt_ids=[session.history(message_id)[-1].id])
    message = session.message(again)
    assert (message.max_attempts, message.lost, message.alone_at) == (3, 0, None)


def test_channel_counts_stay_correct_after_losses(session: Session) -> None:
    for _ in range(3):
        quarantined(session, channel="acme")
    session.create(task="t", channel="acme")
    assert len(session.dequeue(5, tasks=True)) == 1
    assert drifted(session) == []
    session.call("pgqueue_quarantine_dequeue", worker="alone")
    assert drifted(session) == []
    die_alone_with(session)
    session.dequeue(1, tasks=True)
    assert drifted(session) == []
