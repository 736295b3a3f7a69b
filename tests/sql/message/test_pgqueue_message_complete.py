"""Attempts end as succeeded."""

from __future__ import annotations

import datetime as dt
from typing import TYPE_CHECKING, Any

import pytest

from tests.support.sessions import NOON, token, tokens

if TYPE_CHECKING:
    from tests.support.sessions import Session


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
