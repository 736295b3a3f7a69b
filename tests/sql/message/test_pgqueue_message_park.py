"""Messages that a worker does not know are given back, and out of the way of every worker that does not know them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from tests.support.sessions import NOON, Listener, tokens

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tests.support.fixtures.sessions import Connect
    from tests.support.sessions import Session

OUT_OF_REACH = 2**63 - 2


def claim(session: Session, limit: int = 1, worker: str = "w1") -> list[Any]:
    return session.dequeue(limit, worker=worker, tasks=True)


def park(session: Session, taken: list[Any], reason: str = "no such task") -> list[int]:
    return sorted(session.ids("pgqueue_message_park", **tokens(taken), reasons=[reason] * len(taken)))


def parked(session: Session, **columns: Any) -> int:
    """The id of a message that ``w1`` has parked."""
    message_id = session.create(**{"task": "t", **columns})
    assert park(session, claim(session)) == [message_id]
    return message_id


def register(
    session: Session, worker: str, *, lacks: Sequence[str] = (), refuses: Sequence[str] = (), **columns: Any
) -> None:
    defaults: dict[str, Any] = {
        "queues": None,
        "exclude_queues": [],
        "hostname": "here",
        "pid": 1,
        "slots": 4,
        "asleep_ms": 10_000,
    }
    session.call("pgqueue_worker_seen", id=worker, **(defaults | columns))
    session.call("pgqueue_worker_lacks", id=worker, lacks=list(lacks), refuses=list(refuses))


def test_no_dequeue_takes_a_parked_message_and_no_attempt_is_used(session: Session) -> None:
    session.set_clock(NOON)
    message_id = parked(session, max_attempts=1)
    message = session.message(message_id)
    assert (message.attempt, message.worker, message.unlock_at, message.locked_at) == (0, None, None, None)
    assert (message.parked_at, message.unknown_since, message.dequeue_at) == (NOON, NOON, OUT_OF_REACH)
    assert (message.in_line, message.last_error) == (False, "no such task")
    assert claim(session) == []
    assert session.history() == []


def test_each_message_has_its_own_reason(session: Session) -> None:
    for task in ("a", "b"):
        session.create(task=task)
    taken = claim(session, 2)
    session.ids("pgqueue_message_park", **tokens(taken), reasons=["no a", "no b"])
    assert {message.task: message.last_error for message in session.messages()} == {"a": "no a", "b": "no b"}


def test_unknown_since_stays_when_a_message_is_parked_again(session: Session) -> None:
    session.set_clock(NOON)
    message_id = parked(session)
    session.set_clock(NOON + 5000)
    session.call("pgqueue_message_unpark", queues=["default"], tasks=["t"])
    assert park(session, claim(session)) == [message_id]
    message = session.message(message_id)
    assert (message.unknown_since, message.parked_at) == (NOON, NOON + 5000)


@pytest.mark.parametrize("end", ["defer", "lose"])
def test_an_attempt_that_has_begun_clears_unknown_since(session: Session, end: str) -> None:
    message_id = parked(session)
    session.call("pgqueue_message_unpark", queues=["default"], tasks=["t"])
    [held] = claim(session)
    if end == "defer":
        session.value("pgqueue_message_defer", id=held.id, attempt=held.attempt, worker="w1")
    else:
        session.call("pgqueue_worker_died", worker="w1", ids=[held.id], attempts=[held.attempt], running=[False])
    assert session.message(message_id).unknown_since is None


def test_the_result_omits_messages_that_the_worker_does_not_hold(session: Session) -> None:
    for _ in range(2):
        session.create(task="t")
    ours, theirs = claim(session), claim(session, worker="w2")
    session.ids("pgqueue_message_park", **(tokens([*ours, *theirs]) | {"worker": "w1"}), reasons=["x", "x"])
    assert session.message(theirs[0].id) == theirs[0]
    assert session.message(ours[0].id).parked_at is not None


def test_a_message_asked_to_stop_is_cancelled(session: Session) -> None:
    session.create(task="t")
    taken = claim(session)
    session.ids("pgqueue_message_request_cancel", ids=[taken[0].id])
    assert park(session, taken) == [taken[0].id]
    assert session.messages() == []
    assert [attempt.status for attempt in session.history()] == ["cancelled"]


def test_a_parked_message_can_be_cancelled_with_its_own_time(session: Session) -> None:
    session.set_clock(NOON)
    message_id = parked(session)
    assert session.ids("pgqueue_message_cancel", ids=[message_id]) == [message_id]
    [attempt] = session.history()
    assert (attempt.status, attempt.dequeue_at) == ("cancelled", NOON)


def test_a_parked_message_that_is_rescheduled_is_unparked(session: Session) -> None:
    message_id = parked(session)
    assert session.ids("pgqueue_message_reschedule", ids=[message_id]) == [message_id]
    assert session.message(message_id).parked_at is None
    assert [message.id for message in claim(session)] == [message_id]


@pytest.mark.parametrize("on_conflict", ["debounce", "replace"])
def test_a_parked_message_that_is_enqueued_again_is_unparked(session: Session, on_conflict: str) -> None:
    unique: dict[str, Any] = {"unique_key": "k", "content": "tea", "task": "t", "on_conflict": on_conflict}
    session.call("pgqueue_message_create_unique", **unique)
    [held] = claim(session)
    park(session, [held])
    session.call("pgqueue_message_create_unique", **unique)
    assert [message.id for message in claim(session)] == [held.id]


def test_a_quarantined_message_is_not_taken_alone_while_it_is_parked(session: Session) -> None:
    session.create(task="t")
    [held] = claim(session)
    session.call("pgqueue_worker_died", worker="w1", ids=[held.id], attempts=[held.attempt], running=[True])
    alone = session.call("pgqueue_quarantine_dequeue", worker="w1")
    park(session, alone)
    assert not session.value("pgqueue_quarantine_waits")
    session.call("pgqueue_message_unpark", queues=["default"], tasks=["t"])
    assert claim(session) == [], "it goes on to be taken alone"
    assert [message.id for message in session.call("pgqueue_quarantine_dequeue", worker="w1")] == [held.id]


def test_a_parked_message_frees_its_place_in_the_channel(session: Session) -> None:
    session.call("pgqueue_channel_set", name="c", max_concurrency=1)
    session.create(task="unknown", channel="c", priority=1)
    session.create(task="known", channel="c")
    park(session, claim(session))
    assert [message.task for message in claim(session, 5)] == ["known"]


def test_a_raw_message_is_only_released(session: Session) -> None:
    message_id = session.create()
    park(session, session.dequeue(1, worker="w1"))
    assert session.message(message_id).parked_at is None
    assert [message.id for message in session.dequeue(1)] == [message_id]


def test_parking_wakes_sleeping_workers_that_may_know_the_message(connect: Connect) -> None:
    session, ear = (
        connect(),
        Listener(connect(), *(f"pgqueue_{name}" for name in ("lacks", "refuses", "knows", "w1", "other", "raw"))),
    )
    register(session, "lacks", lacks=["t"])
    register(session, "refuses", refuses=["t"])
    register(session, "knows", lacks=["u"])
    register(session, "w1")
    register(session, "other", queues=["mail"])
    register(session, "raw", tasks=False)
    session.create(task="t")
    ear.heard(session)
    park(session, claim(session))
    assert ear.heard(session) == [("pgqueue_knows", "")]
