"""Messages whose worker went away, and their quarantine."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from tests.sql.words import channel, died, drifted, set_channel
from tests.support.sessions import NOON, token, tokens

if TYPE_CHECKING:
    from tests.support.fixtures.sessions import Connect
    from tests.support.sessions import Session

OUT_OF_REACH = 2**63 - 1


def quarantined(session: Session, **columns: Any) -> int:
    """A task whose worker died while it ran."""
    message_id = session.create(**{"task": "t", **columns})
    held = session.take(tasks=True, worker="dead")
    assert held.id == message_id
    died(session, running=[held])
    return message_id


def take_alone(session: Session, **parameters: Any) -> Any:
    return next(iter(session.call("pgqueue_quarantine_dequeue", **{"worker": "alone", **parameters})), None)


def die_alone_with(session: Session) -> Any:
    held = take_alone(session, worker="gone too")
    died(session, "gone too", running=[held])
    return held


def waits(session: Session, **parameters: Any) -> bool:
    answer: bool = session.value("pgqueue_quarantine_waits", **parameters)
    return answer


# pgqueue_message_lose: what becomes of a message whose worker went away


def die_holding(session: Session, **parameters: Any) -> Any:
    """The next task, whose worker goes away without a word."""
    held = session.take(tasks=True, worker="gone", **parameters)
    session.set_clock(held.unlock_at)
    assert session.value("pgqueue_message_expire") == 1
    return held


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
    session.call("pgqueue_message_defer", **token(take_alone(session)), error="oh")
    died(session, running=[session.take(tasks=True, worker="dead")])
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
    held = take_alone(session)
    session.call("pgqueue_message_defer", **token(held), error=error)
    message = session.message(message_id)
    assert (message.lost, message.alone_at) == (0, None)
    assert session.take(tasks=True).id == message_id


def test_losses_in_the_history_are_not_counted_as_errors(session: Session) -> None:
    message_id = quarantined(session, max_attempts=None)
    for _ in range(3):
        die_alone_with(session)
    held = take_alone(session)
    error = {"class": "E", "message": "no"}
    assert session.value("pgqueue_message_defer", **token(held), error=error, max_attempts=2) == "retried"
    held = session.take(tasks=True)
    assert session.value("pgqueue_message_defer", **token(held), error=error, max_attempts=2) == "failed"
    assert session.message(message_id) is None


def test_a_message_enqueued_again_has_the_requested_attempts(session: Session) -> None:
    message_id = quarantined(session, max_attempts=3)
    die_alone_with(session)
    held = take_alone(session)
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
    take_alone(session)
    assert drifted(session) == []
    die_alone_with(session)
    session.dequeue(1, tasks=True)
    assert drifted(session) == []


# pgqueue_message_abandon: a worker that stops gives up what runs


def abandon(session: Session, worker: str) -> Any:
    """The next task, whose worker stops before it has ended."""
    held = session.take(tasks=True, worker=worker)
    assert session.ids("pgqueue_message_abandon", **tokens([held])) == [held.id]
    return held


def test_a_message_whose_workers_were_stopped_is_not_quarantined(session: Session) -> None:
    session.set_clock(NOON)
    message_id = session.create(task="t", max_attempts=1, max_lost=4, dequeue_at=NOON - 5)
    for number in (1, 2, 3):
        abandon(session, f"w{number}")
        message = session.message(message_id)
        assert (message.lost, message.alone_at, message.dequeue_at, message.in_line) == (number, None, NOON - 5, True)
        assert message.last_error == f"worker w{number} stopped while it ran (loss {number} of 4)"
    abandon(session, "w4")
    assert [end.status for end in session.history(message_id)] == ["lost"] * 3 + ["failed"]


def test_a_stop_does_not_end_the_quarantine(session: Session) -> None:
    session.set_clock(NOON)
    message_id = quarantined(session, dequeue_at=NOON - 5)
    held = take_alone(session)
    assert session.ids("pgqueue_message_abandon", **tokens([held])) == [message_id]
    assert session.message(message_id).alone_at == NOON - 5


# pgqueue_quarantine_dequeue: quarantined messages are taken alone, and those that were lost least come first


def test_it_takes_one_message_and_locks_it_like_any_dequeue(session: Session) -> None:
    session.set_clock(NOON)
    message_id = quarantined(session, dequeue_at=NOON - 5)
    quarantined(session)
    held = take_alone(session, lock_ms=1000)
    assert (held.id, held.attempt, held.worker, held.unlock_at, held.dequeue_at) == (
        message_id, 2, "alone", NOON + 1000, NOON - 5,
    )  # fmt: skip
    assert session.value("pgqueue_message_complete", **token(held)) is True
    assert session.history(message_id)[-1].dequeue_at == NOON - 5


def test_without_a_quarantined_message_it_takes_nothing(session: Session) -> None:
    session.create_batch(3, task="t")
    assert not waits(session)
    assert take_alone(session) is None


def test_it_never_takes_a_raw_message(session: Session) -> None:
    raw = session.create()
    session.rows("update pgqueue_message set alone_at = 1 where id = %s", [raw])
    assert not waits(session)
    assert take_alone(session) is None


def test_messages_with_the_fewest_losses_come_first(session: Session) -> None:
    poison = quarantined(session)
    assert die_alone_with(session).id == poison
    innocent = quarantined(session)
    assert [take_alone(session).id for _ in range(2)] == [innocent, poison]


def test_a_scheduled_message_waits(session: Session) -> None:
    session.set_clock(NOON)
    message_id = quarantined(session)
    assert session.ids("pgqueue_message_reschedule", ids=[message_id], dequeue_at=NOON + 10) == [message_id]
    assert session.dequeue(tasks=True) == []
    assert not waits(session)
    assert take_alone(session) is None
    session.set_clock(NOON + 10)
    assert waits(session)
    assert take_alone(session).id == message_id


@pytest.mark.parametrize(
    "others", [{"queues": ["other"]}, {"exclude_queues": ["default"]}, {"queues": []}], ids=lambda o: next(iter(o))
)
def test_it_takes_no_message_of_other_queues(session: Session, others: Any) -> None:
    quarantined(session)
    assert not waits(session, **others)
    assert take_alone(session, **others) is None
    assert waits(session, queues=["default"])
    assert take_alone(session, queues=["default"]) is not None


def test_a_paused_queue_is_skipped(session: Session) -> None:
    quarantined(session)
    session.call("pgqueue_queue_pause", queue="default")
    assert not waits(session)
    assert take_alone(session) is None
    session.call("pgqueue_queue_resume", queue="default")
    assert waits(session)


def test_the_limits_of_channels_hold(session: Session) -> None:
    set_channel(session, max_concurrency=1)
    first, second = quarantined(session, channel="acme"), quarantined(session, channel="acme")
    session.dequeue(1, tasks=True)  # works in what has ended
    held = take_alone(session)
    assert held.id == first
    assert (channel(session).running, drifted(session)) == (1, [])
    assert not waits(session)
    assert take_alone(session) is None
    session.call("pgqueue_message_complete", **token(held))
    session.dequeue(1, tasks=True)
    assert waits(session)
    assert take_alone(session).id == second
    assert drifted(session) == []


def test_the_interval_of_a_channel_holds(session: Session) -> None:
    session.set_clock(NOON)
    set_channel(session, release_interval_ms=1000)
    first = quarantined(session, channel="acme")
    assert take_alone(session) is None
    session.set_clock(NOON + 1000)
    assert take_alone(session).id == first
    assert channel(session).release_at == NOON + 2000


def test_an_ordinary_message_waits_for_a_quarantined_one_of_its_channel(session: Session) -> None:
    set_channel(session, max_concurrency=1)
    quarantined(session, channel="acme")
    session.dequeue(1, tasks=True)
    held = take_alone(session)
    waiting = session.create(task="t", channel="acme")
    assert session.dequeue(1, tasks=True) == []
    session.call("pgqueue_message_complete", **token(held))
    assert session.take(tasks=True).id == waiting


def test_a_deleted_channel_is_counted_again_when_it_is_recreated(session: Session) -> None:
    message_id = quarantined(session, channel="acme")
    session.rows("delete from pgqueue_lane; delete from pgqueue_arrival; delete from pgqueue_channel")
    assert take_alone(session).id == message_id
    session.dequeue(1, tasks=True)
    assert channel(session).running == 1
    assert drifted(session) == []


def test_two_concurrent_calls_take_one_message_each_without_waiting(connect: Connect) -> None:
    first, second = connect(autocommit=False), connect()
    ids = [quarantined(second), quarantined(second)]
    second.rows("set lock_timeout = '1s'")
    assert [take_alone(first).id, take_alone(second).id] == ids
    assert take_alone(second) is None


def test_a_cancelled_message_leaves_the_queue_with_its_own_time(session: Session) -> None:
    session.set_clock(NOON)
    message_id = quarantined(session, dequeue_at=NOON - 5)
    assert session.ids("pgqueue_message_cancel", ids=[message_id]) == [message_id]
    assert [(end.status, end.dequeue_at) for end in session.history(message_id)] == [
        ("lost", NOON - 5), ("cancelled", NOON - 5),
    ]  # fmt: skip


# pgqueue_quarantine_waits: workers ask whether quarantined messages are due


def test_it_returns_whether_a_dequeue_would_find_a_message(session: Session) -> None:
    assert not waits(session)
    quarantined(session)
    assert waits(session)
    assert waits(session), "asking takes nothing"
    take_alone(session)
    assert not waits(session)
