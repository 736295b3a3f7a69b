"""Only the holder of ``(id, attempt, worker)`` ends or lengthens the attempt, by any of the calls for it."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import pytest
from psycopg.types.json import Jsonb

from tests.sql.words import behind
from tests.support.sessions import NOON, token

if TYPE_CHECKING:
    from tests.support.fixtures.sessions import Connect
    from tests.support.sessions import Session

MINUTE = 60_000
Token = dict[str, Any]
Ending = Callable[["Session", Token], bool]


def _as_batch(held: Token) -> dict[str, Any]:
    return {"ids": [held["id"]], "attempts": [held["attempt"]], "worker": held["worker"]}


def _answered(function: str) -> Ending:
    return lambda session, held: session.ids(function, **_as_batch(held)) == [held["id"]]


ENDINGS: dict[str, Ending] = {
    "complete": lambda session, held: session.value("pgqueue_message_complete", **held),
    "complete of many": _answered("pgqueue_message_complete"),
    "defer": lambda session, held: session.value("pgqueue_message_defer", **held) is not None,
    "retry": lambda session, held: session.value("pgqueue_message_defer", **held, error={"message": "no"}) is not None,
    "fail": lambda session, held: session.value("pgqueue_message_fail", **held),
    "cancel": lambda session, held: session.value("pgqueue_message_cancel", **held, error=None),
    "release": _answered("pgqueue_message_release"),
    "abandon": _answered("pgqueue_message_abandon"),
    "heartbeat": lambda session, held: session.value("pgqueue_message_heartbeat", **held),
    "heartbeat of many": _answered("pgqueue_message_heartbeat"),
    "progress": lambda session, held: session.value("pgqueue_message_progress", **held, progress=Jsonb({})),
}


@pytest.fixture(params=list(ENDINGS))
def end(request: pytest.FixtureRequest) -> Ending:
    return ENDINGS[request.param]


@pytest.fixture
def held(session: Session) -> Any:
    """A message that the worker w1 holds for a minute from noon on."""
    session.set_clock(NOON)
    session.create(max_attempts=50)
    return session.take(worker="w1")


def test_the_holder_of_the_attempt_can_end_it(session: Session, end: Ending, held: Any) -> None:
    assert end(session, token(held)) is True


def test_a_holder_with_an_expired_lock_can_end_it_until_a_takeover(session: Session, end: Ending, held: Any) -> None:
    session.set_clock(NOON + 100 * MINUTE)
    assert end(session, token(held)) is True


def _when_the_lock_has_run_out(happens: Callable[[Session, Any], object]) -> Callable[[Session, Any], Token]:
    def afterwards(session: Session, held: Any) -> Token:
        session.set_clock(NOON + MINUTE)
        happens(session, held)
        return token(held)

    return afterwards


def _ended_by(name: str) -> Callable[[Session, Any], Token]:
    def ended(session: Session, held: Any) -> Token:
        assert ENDINGS[name](session, token(held))
        return token(held)

    return ended


def _deferred_and_held_by_another(session: Session, held: Any) -> Token:
    session.value("pgqueue_message_defer", **token(held))
    session.take(worker="w2")
    return token(held)


def _released_and_held_by_another(session: Session, held: Any) -> Token:
    """The attempt has the same number again: the worker tells them apart."""
    session.ids("pgqueue_message_release", **_as_batch(token(held)))
    assert session.take(worker="w2").attempt == held.attempt
    return token(held)


STRANGERS: dict[str, Callable[[Session, Any], Token]] = {
    "taken over by another worker": _when_the_lock_has_run_out(lambda session, _: session.take(worker="w2")),
    "taken over by the same worker": _when_the_lock_has_run_out(lambda session, _: session.take(worker="w1")),
    "lock ran out and was cleared": _when_the_lock_has_run_out(
        lambda session, _: session.call("pgqueue_message_expire")
    ),
    "lock ran out and was cancelled": _when_the_lock_has_run_out(
        lambda session, held: session.call("pgqueue_message_cancel", id=held.id)
    ),
    "completed": _ended_by("complete"),
    "deferred": _ended_by("defer"),
    "retried": _ended_by("retry"),
    "failed": _ended_by("fail"),
    "released": _ended_by("release"),
    "deferred and held by another worker": _deferred_and_held_by_another,
    "released and held by another worker": _released_and_held_by_another,
    "another worker": lambda _, held: token(held) | {"worker": "w2"},
    "a worker without a name": lambda _, held: token(held) | {"worker": ""},
    "the attempt before": lambda _, held: token(held) | {"attempt": held.attempt - 1},
    "the attempt to come": lambda _, held: token(held) | {"attempt": held.attempt + 1},
    "no attempt": lambda _, held: token(held) | {"attempt": None},
    "a message that never was": lambda _, held: token(held) | {"id": 2**62},
}


@pytest.mark.parametrize("stranger", list(STRANGERS))
def test_another_worker_cannot_end_the_attempt(session: Session, end: Ending, held: Any, stranger: str) -> None:
    not_ours = STRANGERS[stranger](session, held)
    before = session.messages(), session.history()

    assert not end(session, not_ours)

    assert (session.messages(), session.history()) == before


def test_a_waiting_message_has_no_holder(session: Session, end: Ending) -> None:
    message_id = session.create()
    for worker in ("", "w1", session.one("select pgqueue_session_worker()")):
        for attempt in (0, 1):
            assert not end(session, {"id": message_id, "attempt": attempt, "worker": worker})
    assert len(session.messages()) == 1


@pytest.mark.parametrize("first", ["defer", "release", "complete"])
def test_of_two_concurrent_ends_of_an_attempt_one_succeeds(connect: Connect, end: Ending, first: str) -> None:
    """Two threads of one worker, or a late answer of a database that had been away."""
    one, other, witness = connect(autocommit=False), connect(), connect()
    witness.create(max_attempts=50)
    held = token(witness.take(worker="w1"))
    assert ENDINGS[first](one, held) is True
    assert behind(one, other, lambda: end(other, held)) is False
    assert len(witness.history()) == (first != "release")
    assert len(witness.messages()) == (first != "complete")
