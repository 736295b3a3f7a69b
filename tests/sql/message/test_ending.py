"""Attempts go on, and end as succeeded, failed or deferred, or are given back."""

from __future__ import annotations

import datetime as dt
from typing import TYPE_CHECKING, Any

import pytest
from psycopg.types.json import Jsonb

from tests.support.sessions import NOON, token, tokens

if TYPE_CHECKING:
    from tests.support.fixtures.sessions import Connect
    from tests.support.sessions import Session


MINUTE = 60_000
ERROR = {"class": "builtins.OSError", "message": "no network", "traceback": "Traceback …"}
HALF = Jsonb({"fraction": 0.5, "text": "halfway"})


# pgqueue_message_complete: attempts end as succeeded


def test_a_completed_message_leaves_the_queue_for_the_history(session: Session) -> None:
    session.set_clock(NOON)
    message_id = session.create({"n": 1}, queue="mail", channel="tenant", priority=7, headers={"trace": 1})
    session.set_clock(NOON + 1000)
    held = session.take(worker="w1")
    session.set_clock(NOON + 3000)

    assert session.value("pgqueue_message_complete", **token(held), result={"sent": True}) is True

    assert session.messages() == []
    [ended] = session.history(message_id)
    assert (ended.status, ended.final, ended.attempt, ended.max_attempts) == ("succeeded", True, 1, 5)
    assert (ended.content, ended.headers, ended.result) == ({"n": 1}, {"trace": 1}, {"sent": True})
    assert (ended.queue, ended.channel, ended.task, ended.priority, ended.worker) == ("mail", "tenant", None, 7, "w1")
    assert (ended.error_class, ended.error_message, ended.traceback) == (None, None, None)
    times = [ended.created_at, ended.started_at, ended.finished_at]
    assert [moment.timestamp() * 1000 for moment in times] == [NOON, NOON + 1000, NOON + 3000]
    assert ended.dequeue_at == NOON


def test_one_call_completes_many_messages_with_their_results_and_times(session: Session) -> None:
    ids = session.create_batch(3)
    held = session.dequeue(3, worker="w1")
    moments = [dt.datetime(2024, 5, day, tzinfo=dt.UTC) for day in (1, 2, 3, 4, 5, 6)]
    answered = session.ids(
        "pgqueue_message_complete",
        **tokens(held),
        results=[{"n": 0}, None, [2]],
        started_ats=moments[:3],
        finished_ats=moments[3:],
    )
    assert sorted(answered) == ids
    ends = session.history()
    assert [(end.message_id, end.result) for end in ends] == [(ids[0], {"n": 0}), (ids[1], None), (ids[2], [2])]
    assert [(end.started_at, end.finished_at) for end in ends] == list(zip(moments[:3], moments[3:], strict=True))


def test_missing_times_default_to_the_lock_and_now(session: Session) -> None:
    session.set_clock(NOON)
    session.create_batch(2)
    held = session.dequeue(2, worker="w1")
    session.set_clock(NOON + 500)
    given = dt.datetime(2024, 5, 1, tzinfo=dt.UTC)
    session.ids("pgqueue_message_complete", **tokens(held), started_ats=[given, None], finished_ats=[None, given])
    first, second = session.history()
    assert (first.started_at, first.finished_at.timestamp() * 1000) == (given, NOON + 500)
    assert (second.started_at.timestamp() * 1000, second.finished_at) == (NOON, given)


def test_the_result_omits_messages_that_the_worker_does_not_hold(session: Session) -> None:
    session.create_batch(5)
    ours = session.dequeue(3, worker="w1")
    theirs = session.dequeue(1, worker="w2")
    waiting = [message for message in session.messages() if message.worker is None]
    claimed = tokens([*ours, *theirs, *waiting])
    claimed["ids"].append(2**62)
    claimed["attempts"].append(1)

    assert sorted(session.ids("pgqueue_message_complete", **claimed)) == [message.id for message in ours]
    assert session.messages() == [*theirs, *waiting]


def test_the_order_of_the_call_does_not_matter(session: Session) -> None:
    session.create_batch(50)
    held = session.dequeue(50, worker="w1")[::-1]
    results = [{"n": message.content} for message in held]
    session.ids("pgqueue_message_complete", **tokens(held), results=results)
    assert all(end.result == {"n": end.content} for end in session.history())


def test_empty_arrays_complete_nothing(session: Session) -> None:
    nothing: dict[str, Any] = {"ids": [], "attempts": [], "worker": "w1"}
    assert session.ids("pgqueue_message_complete", **nothing) == []


def test_an_id_that_is_given_twice_counts_with_its_first_attempt(session: Session) -> None:
    session.create()
    held = session.take(worker="w1")
    twice = {"ids": [held.id, held.id], "attempts": [held.attempt, held.attempt + 1], "worker": "w1"}
    assert session.ids("pgqueue_message_complete", **twice) == [held.id]
    assert len(session.history()) == 1


@pytest.mark.parametrize("result", [None, False, 0, "", [], {}])
def test_an_empty_result_is_stored(session: Session, result: Any) -> None:
    session.create()
    session.value("pgqueue_message_complete", **token(session.take()), result=result)
    assert session.history()[0].result == result


# pgqueue_message_fail: a message is given up


@pytest.mark.parametrize("max_attempts", [1, 5, None])
def test_a_failed_message_leaves_the_queue_despite_remaining_attempts(
    session: Session, max_attempts: int | None
) -> None:
    message_id = session.create({"n": 1}, max_attempts=max_attempts)
    assert session.value("pgqueue_message_fail", **token(session.take(worker="w1")), error=ERROR) is True

    assert session.message(message_id) is None
    [end] = session.history(message_id)
    assert (end.status, end.final, end.content, end.worker) == ("failed", True, {"n": 1}, "w1")
    assert {"class": end.error_class, "message": end.error_message, "traceback": end.traceback} == ERROR


def test_a_message_may_fail_without_an_error(session: Session) -> None:
    session.create()
    assert session.value("pgqueue_message_fail", **token(session.take())) is True
    [end] = session.history()
    assert (end.status, end.error_class, end.error_message, end.traceback) == ("failed", None, None, None)


@pytest.mark.parametrize("end", ["fail", "defer"])
def test_start_and_end_of_the_attempt_may_be_given(session: Session, end: str) -> None:
    began, ended = dt.datetime(2024, 5, 1, tzinfo=dt.UTC), dt.datetime(2024, 5, 2, tzinfo=dt.UTC)
    session.create()
    session.value(f"pgqueue_message_{end}", **token(session.take()), started_at=began, finished_at=ended)
    assert [(one.started_at, one.finished_at) for one in session.history()] == [(began, ended)]


# pgqueue_message_defer: a message goes back into the queue, for later or after an error


def test_a_deferred_message_waits_again_without_a_lock(session: Session) -> None:
    session.set_clock(NOON)
    said = {"queue": "mail", "priority": 9, "headers": {"trace": 1}}
    message_id = session.create({"n": 1}, **said)
    held = session.take()

    assert session.value("pgqueue_message_defer", **token(held), dequeue_at=NOON + 5000) == "deferred"

    message = session.message(message_id)
    assert (message.dequeue_at, message.attempt) == (NOON + 5000, 1)
    assert (message.unlock_at, message.locked_at, message.worker) == (None, None, None)
    assert message.content == {"n": 1}
    assert {name: getattr(message, name) for name in said} == said
    assert session.dequeue() == []
    session.set_clock(NOON + 5000)
    assert session.take().attempt == 2


def test_without_a_time_it_is_ready_at_once_behind_waiting_messages(session: Session) -> None:
    session.set_clock(NOON)
    session.create("deferred", dequeue_at=NOON - 10)
    session.create("waiting", dequeue_at=NOON - 1)
    session.value("pgqueue_message_defer", **token(session.take()))
    assert [message.content for message in session.dequeue(2)] == ["waiting", "deferred"]


def test_the_history_has_the_deferred_attempt_without_content(session: Session) -> None:
    session.set_clock(NOON)
    message_id = session.create({"n": 1}, dequeue_at=NOON - 7)
    held = session.take(worker="w1")
    session.value("pgqueue_message_defer", **token(held), dequeue_at=NOON + 1)
    [end] = session.history(message_id)
    assert (end.status, end.final, end.attempt, end.worker, end.content) == ("deferred", False, 1, "w1", None)
    assert end.dequeue_at == NOON - 7, "when this attempt was due, not the next one"


def test_state_is_kept_until_another_one_is_given(session: Session) -> None:
    message_id = session.create()
    for state, kept in (({"page": 1}, {"page": 1}), (None, {"page": 1}), ([], [])):
        session.value("pgqueue_message_defer", **token(session.take()), state=state)
        assert session.message(message_id).state == kept


def test_deferring_between_errors_keeps_count_of_the_errors(session: Session) -> None:
    session.create(max_attempts=3)
    answers = [
        session.value("pgqueue_message_defer", **token(session.take()), error=error)
        for error in (ERROR, None, ERROR, *[None] * 20, ERROR)
    ]
    assert answers == ["retried", "deferred", "retried", *["deferred"] * 20, "failed"]


@pytest.mark.parametrize(("max_attempts", "answers"), [(1, ["failed"]), (3, ["retried", "retried", "failed"])])
def test_an_error_is_a_retry_until_max_attempts_is_reached(
    session: Session, max_attempts: int, answers: list[str]
) -> None:
    message_id = session.create({"n": 1}, max_attempts=max_attempts)
    for answer in answers:
        assert session.value("pgqueue_message_defer", **token(session.take()), error=ERROR) == answer
    assert session.message(message_id) is None
    ends = session.history(message_id)
    assert [(end.status, end.final) for end in ends] == [(answer, answer == "failed") for answer in answers]
    assert [end.content for end in ends] == [None] * (len(answers) - 1) + [{"n": 1}]


def test_without_max_attempts_the_first_error_is_the_last(session: Session) -> None:
    session.create(max_attempts=None)
    assert session.value("pgqueue_message_defer", **token(session.take())) == "deferred"
    assert session.value("pgqueue_message_defer", **token(session.take()), error=ERROR) == "failed"


def test_the_history_has_the_error_and_the_queue_its_text(session: Session) -> None:
    message_id = session.create()
    session.value("pgqueue_message_defer", **token(session.take()), error=ERROR)
    [end] = session.history(message_id)
    assert {"class": end.error_class, "message": end.error_message, "traceback": end.traceback} == ERROR
    assert session.message(message_id).last_error == "no network"


@pytest.mark.parametrize(
    ("error", "shown"),
    [({"class": "builtins.KeyError"}, "builtins.KeyError"), ({"message": "late"}, "late"), ({}, "before")],
)
def test_an_error_may_lack_fields(session: Session, error: dict[str, str], shown: str) -> None:
    message_id = session.create()
    session.value("pgqueue_message_defer", **token(session.take()), error={"message": "before"})
    session.value("pgqueue_message_defer", **token(session.take()), error=error)
    assert session.message(message_id).last_error == shown


# pgqueue_message_heartbeat: locks are lengthened while the work goes on


@pytest.mark.parametrize(("said", "lasts_ms"), [({"lock_ms": 7000}, 7000), ({"lock_ms": 1}, 1), ({}, MINUTE)])
def test_a_heartbeat_extends_the_lock_from_now_and_changes_nothing_else(
    session: Session, said: dict[str, int], lasts_ms: int
) -> None:
    session.set_clock(NOON)
    message_id = session.create()
    held = session.take(lock_ms=10_000)
    session.set_clock(NOON + 4000)
    assert session.value("pgqueue_message_heartbeat", **token(held), **said) is True
    assert session.message(message_id) == held._replace(unlock_at=NOON + 4000 + lasts_ms)


def test_a_consumer_that_sends_heartbeats_is_never_taken_over(session: Session) -> None:
    session.set_clock(NOON)
    session.create()
    held = session.take(worker="slow")
    for beat in range(1, 10):
        session.set_clock(NOON + beat * MINUTE - 1)
        assert session.value("pgqueue_message_heartbeat", **token(held)) is True
        session.set_clock(NOON + beat * MINUTE)
        assert session.dequeue(worker="eager") == []
    assert session.value("pgqueue_message_complete", **token(held)) is True


# pgqueue_message_progress: a consumer says how far it is.  Who does not hold the message cannot: see test_fencing.py


def test_the_message_has_the_last_progress(session: Session) -> None:
    session.create()
    held = session.take()
    assert session.value("pgqueue_message_progress", **token(held), progress=HALF) is True
    assert session.message(held.id)._replace(progress=None) == held
    assert session.message(held.id).progress == {"fraction": 0.5, "text": "halfway"}


def test_the_next_attempt_begins_without_progress(session: Session) -> None:
    session.set_clock(NOON)
    session.create()
    held = session.take()
    session.value("pgqueue_message_progress", **token(held), progress=HALF)
    session.value("pgqueue_message_defer", **token(held))
    again = session.take()
    assert again.progress is None
    session.value("pgqueue_message_progress", **token(again), progress=HALF)
    session.set_clock(NOON + 60_000)
    assert session.take().progress is None


# pgqueue_message_release: messages that were not started are given back


def create_unique(session: Session, content: Any = "tea", **parameters: Any) -> int:
    """The id of the message that now holds the key: until it starts."""
    [row] = session.call(
        "pgqueue_message_create_unique", unique_key="k", content=content, until_started=True, **parameters
    )
    message_id: int = row.p_id
    return message_id


def test_released_messages_keep_their_position(session: Session) -> None:
    session.create_batch(4)
    taken = session.dequeue(2, worker="w1")
    assert sorted(session.ids("pgqueue_message_release", **tokens(taken))) == [message.id for message in taken]
    assert [message.content for message in session.dequeue(4)] == [0, 1, 2, 3]


def test_the_attempt_does_not_count_and_leaves_no_history(session: Session) -> None:
    message_id = session.create(max_attempts=1)
    for _ in range(10):
        session.ids("pgqueue_message_release", **tokens([session.take(worker="w1")]))
    message = session.message(message_id)
    assert (message.attempt, message.unlock_at, message.locked_at, message.worker) == (0, None, None, None)
    assert session.history() == []
    assert session.take().attempt == 1


def test_state_and_the_last_error_stay(session: Session) -> None:
    message_id = session.create()
    held = session.take(worker="w1")
    session.value(
        "pgqueue_message_defer", id=held.id, attempt=1, worker="w1", state={"page": 2}, error={"message": "late"}
    )
    before = session.message(message_id)
    session.ids("pgqueue_message_release", **tokens([session.take(worker="w1")]))
    assert session.message(message_id) == before


def test_a_key_held_until_started_is_held_again(session: Session) -> None:
    first = create_unique(session)
    session.ids("pgqueue_message_release", **tokens([session.take(worker="w1")]))
    assert create_unique(session) == first
    session.take(worker="w1")
    assert create_unique(session) != first


def test_a_key_that_another_message_holds_now_is_not_restored(session: Session) -> None:
    first = create_unique(session, "first")
    held = session.take(worker="w1")
    second = create_unique(session, "second")
    assert session.ids("pgqueue_message_release", **tokens([held])) == [first]
    assert create_unique(session) == second
    assert [(message.content, message.attempt) for message in session.dequeue(5)] == [("first", 1), ("second", 1)]


def test_of_two_released_messages_with_a_key_the_first_holds_it(session: Session) -> None:
    first = create_unique(session)
    held = [session.take(worker="w1")]
    create_unique(session)
    held.append(session.take(worker="w1"))
    assert len(session.ids("pgqueue_message_release", **tokens(held))) == 2
    assert create_unique(session) == first


def test_a_message_with_an_earlier_attempt_does_not_restore_its_key(session: Session) -> None:
    first = create_unique(session)
    session.value("pgqueue_message_defer", **token(session.take(worker="w1")))
    session.ids("pgqueue_message_release", **tokens([session.take(worker="w1")]))
    assert create_unique(session) != first


def test_a_message_asked_to_stop_does_not_restore_its_key(session: Session) -> None:
    first = create_unique(session)
    held = session.take(worker="w1")
    session.ids("pgqueue_message_request_cancel", ids=[first])
    second = create_unique(session)
    assert session.ids("pgqueue_message_release", **tokens([held])) == [first]
    assert [message.id for message in session.messages()] == [second]


@pytest.mark.parametrize("commits", [True, False])
def test_an_uncommitted_holder_of_the_key_keeps_it_without_a_wait(connect: Connect, commits: bool) -> None:
    worker, producer = connect(), connect(autocommit=False)
    first = create_unique(worker, "first")
    worker.create("without a key")
    held = worker.dequeue(2, worker="w1")
    second = create_unique(producer, "second")
    worker.rows("set statement_timeout = '5s'")
    assert len(worker.ids("pgqueue_message_release", **tokens(held))) == 2
    assert worker.one("show lock_timeout") == "0"
    producer.commit() if commits else producer.rollback()
    third = create_unique(worker, "third")
    assert third not in {first, second} if not commits else third == second
    assert {message.content for message in worker.dequeue(5)} == (
        {"first", "without a key", "second" if commits else "third"}
    )
