"""Every door stamps a message with the version of the deploy, and what becomes of the stamp."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import psycopg
import pytest
from psycopg.types.json import Jsonb

from tests.sql.words import see
from tests.support.sessions import NOON, Listener, token, tokens

if TYPE_CHECKING:
    from tests.support.fixtures.sessions import Connect
    from tests.support.sessions import Session

CONTENT: dict[str, Any] = {"args": [], "kwargs": {}}


def version(session: Session, message_id: Any) -> str | None:
    found: str | None = session.message(message_id).version
    return found


def worker(session: Session, name: str, version: str | None, **columns: Any) -> None:
    see(session, name, **columns)
    session.call("pgqueue_worker_version", id=name, version=version)


def test_a_message_has_no_version_by_default(session: Session) -> None:
    assert version(session, session.create(task="t")) is None
    assert version(session, session.create(task="t", version="2")) == "2"


def test_every_enqueue_function_takes_a_version(session: Session) -> None:
    shared = {"content": CONTENT, "task": "t", "version": "2"}
    assert version(session, session.call("pgqueue_message_create_unique", unique_key="k", **shared)[0].p_id) == "2"
    assert version(session, session.value("pgqueue_message_create_after", after_ids=[1], **shared)) == "2"
    [alike] = session.ids(
        "pgqueue_message_create_many", contents=Jsonb([CONTENT]), queue="default", task="t", version="2"
    )
    many = session.ids("pgqueue_message_create_many", messages=[shared, shared | {"unique_key": "l"}])
    plain = session.ids("pgqueue_message_create_many", messages=[shared])
    assert [version(session, one) for one in (alike, *many, *plain)] == ["2"] * 4


def test_a_published_task_has_a_version_and_a_raw_message_has_none(session: Session) -> None:
    session.call("pgqueue_exchange_declare", name="orders")
    session.call("pgqueue_binding_declare", exchange="orders", pattern="#", queue="a")
    session.call("pgqueue_binding_declare", exchange="orders", pattern="#", queue="b", task="t")
    published = session.call("pgqueue_message_publish", exchange="orders", routing_key="x", content=1, version="2")
    assert {one.p_queue: version(session, one.p_id) for one in published} == {"a": None, "b": "2"}


def test_a_scheduled_message_has_the_version_of_its_worker(session: Session) -> None:
    session.set_clock(NOON)
    session.call("pgqueue_schedule_declare", name="s", task="t", next_at=NOON, interval_ms=1000)
    [fired] = session.ids(
        "pgqueue_schedule_fire", name="s", slots=[NOON], expected_at=NOON, next_at=NOON + 1000, version="3", max_lost=4
    )
    assert (session.message(fired).version, session.message(fired).max_lost) == ("3", 4)


def test_a_message_enqueued_again_has_the_version_of_the_caller(session: Session) -> None:
    message_id = session.create(task="t", version="1")
    session.call("pgqueue_message_fail", **token(session.take(tasks=True)))
    [end] = session.history(message_id)
    [again] = session.ids("pgqueue_attempt_enqueue", attempt_ids=[end.id], version="2")
    assert version(session, again) == "2"


def test_replacing_a_message_replaces_its_version(session: Session) -> None:
    shared = {"content": CONTENT, "task": "t", "unique_key": "k"}
    [[first, _]] = session.call("pgqueue_message_create_unique", version="1", **shared)
    session.call("pgqueue_message_create_unique", version="2", on_conflict="keep", **shared)
    session.call("pgqueue_message_create_unique", version="2", on_conflict="debounce", **shared)
    assert version(session, first) == "1"
    session.call("pgqueue_message_create_unique", version="2", on_conflict="replace", **shared)
    assert version(session, first) == "2"


def test_a_long_version_is_refused(session: Session) -> None:
    session.create(task="t", version="x" * 100)
    with pytest.raises(psycopg.errors.CheckViolation):
        session.create(task="t", version="x" * 101)


@pytest.mark.parametrize(
    ("message", "runs", "state", "after"),
    [
        ("9", "10", {"n": 1}, "10"),
        ("9", "10", None, "9"),
        ("10", "9", {"n": 1}, "10"),
        ("9", None, {"n": 1}, "9"),
        (None, "10", {"n": 1}, "10"),
        (None, "10", None, None),
    ],
)
def test_a_state_has_the_version_of_the_worker_that_left_it(
    session: Session, message: str | None, runs: str | None, state: Any, after: str | None
) -> None:
    worker(session, "w", runs)
    message_id = session.create(task="t", version=message)
    session.call("pgqueue_message_defer", **token(session.take(tasks=True, worker="w")), state=state)
    assert version(session, message_id) == after


def park(session: Session, message_id: int) -> None:
    held = session.dequeue(2, tasks=True, worker="old")
    assert [one.id for one in held] == [message_id]
    session.call("pgqueue_message_park", **tokens(held), reasons=["later"], unknown=False)


def test_a_message_for_a_later_version_is_parked_and_never_unknown(session: Session) -> None:
    session.set_clock(NOON)
    worker(session, "old", "1")
    session.call("pgqueue_worker_lacks", id="old", lacks=["t"])
    message_id = session.create(task="t", version="2")
    park(session, message_id)
    message = session.message(message_id)
    assert (message.parked_at, message.unknown_since, message.attempt) == (NOON, None, 0)
    see(session, "old")
    assert session.value("pgqueue_message_unknown_fail", queues=["default"], tasks=["t"], seconds=0) == 0
    [line] = session.call("pgqueue_message_parked")
    assert (line.p_messages, line.p_unknown_since, line.p_version) == (1, None, "2")
    session.call("pgqueue_message_unpark", queues=["default"], tasks=["t"])
    assert session.take(tasks=True).id == message_id


def test_a_message_for_a_later_version_can_be_cancelled(session: Session) -> None:
    session.set_clock(NOON)
    message_id = session.create(task="t", version="2")
    park(session, message_id)
    session.call("pgqueue_message_cancel", id=message_id)
    [end] = session.history(message_id)
    assert (end.status, end.dequeue_at) == ("cancelled", NOON)


def test_only_workers_of_the_version_are_woken(connect: Connect) -> None:
    session = connect()
    listener = Listener(connect(), *(f"pgqueue_{name}" for name in ("older", "none", "same", "later")))
    for name, its in (("old", "1"), ("older", "1"), ("none", None), ("same", "2"), ("later", "10")):
        worker(session, name, its, asleep_ms=60_000)
    message_id = session.create(task="t", version="2")
    listener.heard(session)  # of the enqueue
    park(session, message_id)
    assert sorted(channel for channel, _ in listener.heard(session)) == ["pgqueue_later", "pgqueue_same"]


def test_those_that_refuse_some_arguments_of_the_task_are_woken_and_those_that_lack_it_are_not(
    connect: Connect,
) -> None:
    session = connect()
    listener = Listener(connect(), "pgqueue_lacks", "pgqueue_refuses")
    for name in ("lacks", "refuses"):
        worker(session, name, "2", asleep_ms=60_000)
        session.call("pgqueue_worker_lacks", **{"id": name, "lacks": [], name: ["t"]})
    worker(session, "old", "1")
    message_id = session.create(task="t", version="2")
    listener.heard(session)  # of the enqueue
    park(session, message_id)
    assert listener.heard(session) == [("pgqueue_refuses", "")]
