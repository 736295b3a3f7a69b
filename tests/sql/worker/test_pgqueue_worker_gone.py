"""Workers sign off."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tests.sql.worker.test_pgqueue_worker_seen import see
from tests.support.sessions import NOON

if TYPE_CHECKING:
    from tests.support.sessions import Session


def _workers(session: Session) -> list[str]:
    return session.column("select id from pgqueue_worker order by id")


def test_a_worker_that_signs_off_is_deleted_and_others_stay(session: Session) -> None:
    for name in ("a", "b"):
        see(session, name)
    session.call("pgqueue_worker_gone", id="a")
    assert _workers(session) == ["b"]


def test_workers_that_died_without_signing_off_are_deleted(session: Session) -> None:
    for name, seen in (("long silent", NOON - 600_001), ("just silent", NOON - 600_000), ("speaking", NOON)):
        session.set_clock(seen)
        see(session, name)
    session.set_clock(NOON)
    session.call("pgqueue_worker_gone", id="somebody else")
    assert _workers(session) == ["just silent", "speaking"]


def test_the_silence_limit_may_be_given(session: Session) -> None:
    session.set_clock(NOON)
    see(session, "a")
    session.set_clock(NOON + 1001)
    session.call("pgqueue_worker_gone", id="b", silent_ms=1000)
    assert _workers(session) == []


def test_a_worker_with_an_announced_silence_stays(session: Session) -> None:
    session.set_clock(NOON - 700_000)
    see(session, "a")
    session.rows("update pgqueue_worker set silent_until = %s", [NOON + 1])
    session.set_clock(NOON)
    session.call("pgqueue_worker_gone", id="b")
    assert _workers(session) == ["a"]
    session.set_clock(NOON + 1)
    session.call("pgqueue_worker_gone", id="b")
    assert _workers(session) == []
