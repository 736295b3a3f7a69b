"""One message at a time holds a key."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

import psycopg
import pytest

from tests.sql.worker.test_pgqueue_worker_seen import see
from tests.support.sessions import NOON, Listener, concurrently, eventually, token, tokens

if TYPE_CHECKING:
    from tests.support.fixtures.sessions import Connect
    from tests.support.sessions import Session


def create(session: Session, content: Any = "tea", key: str = "invoice 7", **parameters: Any) -> tuple[int, bool]:
    """The id of the message that holds the key, and whether it is a new one."""
    [row] = session.call("pgqueue_message_create_unique", unique_key=key, content=content, **parameters)
    return row.p_id, row.p_created


def test_the_first_message_is_created_and_later_calls_return_its_id(session: Session) -> None:
    message_id, created = create(session, "first")
    assert created
    assert create(session, "second") == (message_id, False)
    assert [message.content for message in session.messages()] == ["first"]


def test_different_keys_do_not_conflict(session: Session) -> None:
    assert [create(session, key=key)[1] for key in ("a", "b", "A", "a ", "")] == [True] * 5


def test_until_started_holds_the_key_until_the_first_attempt_begins(session: Session) -> None:
    first, _ = create(session, until_started=True)
    assert create(session, until_started=True) == (first, False)
    session.take()
    second, created = create(session, until_started=True)
    assert created
    assert create(session, until_started=True) == (second, False)


@pytest.mark.parametrize("on_conflict", ["keep", "replace", "debounce"])
def test_a_message_asked_to_stop_no_longer_holds_its_key(session: Session, on_conflict: str) -> None:
    first, _ = create(session, "first")
    held = session.take()
    session.ids("pgqueue_message_request_cancel", ids=[first])
    second, created = create(session, "second", on_conflict=on_conflict)
    assert created
    assert create(session, "third") == (second, False)
    assert session.message(first).content == "first"
    session.value("pgqueue_message_cancel", **token(held))
    assert create(session, "fourth") == (second, False)
    assert session.history()[0].unique_key == "invoice 7"


@pytest.mark.parametrize("wrong", ["ignore", "raise", "Keep", "", None])
@pytest.mark.parametrize("taken", [False, True])
def test_an_unknown_on_conflict_is_an_error_that_names_it(session: Session, wrong: str | None, *, taken: bool) -> None:
    if taken:
        create(session)
    said = "NULL" if wrong is None else f"'{wrong}'"
    with pytest.raises(psycopg.errors.InvalidParameterValue, match=f"p_on_conflict is {said}") as refused:
        create(session, on_conflict=wrong)
    assert refused.value.diag.message_hint == "It must be keep, replace or debounce."


# What happens to the one that waits


def test_keep_leaves_the_message_unchanged(session: Session) -> None:
    message_id, _ = create(session, "first", dequeue_at=5)
    before = session.message(message_id)
    create(session, "second", dequeue_at=7, priority=9)
    assert session.message(message_id) == before


def test_debounce_changes_only_the_time(session: Session) -> None:
    session.set_clock(NOON)
    message_id, _ = create(session, "first", dequeue_at=NOON + 10)
    before = session.message(message_id)
    session.set_clock(NOON + 5)
    assert create(session, "second", dequeue_at=NOON + 15, priority=9, on_conflict="debounce") == (message_id, False)
    assert session.message(message_id) == before._replace(dequeue_at=NOON + 15)


def test_replace_gives_the_message_all_new_values(session: Session) -> None:
    message_id, _ = create(session, "first", dequeue_at=5, priority=1)
    said: dict[str, Any] = {"queue": "mail", "priority": -4, "dequeue_at": 9, "channel": "tenant", "headers": {"n": 2}}
    assert create(session, "second", on_conflict="replace", max_attempts=1, **said) == (message_id, False)
    message = session.message(message_id)
    assert (message.content, message.max_attempts) == ("second", 1)
    assert {name: getattr(message, name) for name in said} == said


@pytest.mark.parametrize("on_conflict", ["keep", "replace", "debounce"])
def test_a_running_message_stays_unchanged(session: Session, on_conflict: str) -> None:
    create(session, "first")
    held = session.take()
    assert create(session, "second", on_conflict=on_conflict, dequeue_at=7) == (held.id, False)
    assert session.message(held.id) == held


# With others


def test_of_concurrent_calls_one_creates_the_message_and_all_get_its_id(connect: Connect) -> None:
    sessions = [connect() for _ in range(8)]
    answers = concurrently([partial(create, session, n) for n, session in enumerate(sessions)])
    assert len({message_id for message_id, _ in answers}) == 1
    assert [created for _, created in answers].count(True) == 1
    assert len(sessions[0].messages()) == 1


def test_a_message_that_ends_meanwhile_frees_its_key(connect: Connect) -> None:
    worker, producer, witness = connect(autocommit=False), connect(), connect()
    create(producer)
    worker.value("pgqueue_message_complete", **token(worker.take(worker="w1")))

    def end_it() -> tuple[int, bool]:
        eventually(lambda: witness.waits_for_a_lock(producer))
        worker.commit()
        return 0, False

    [(message_id, created), _] = concurrently([lambda: create(producer), end_it])

    assert created
    assert [message.id for message in witness.messages()] == [message_id]


def test_a_new_ready_message_wakes_a_sleeper_and_a_kept_one_does_not(connect: Connect) -> None:
    producer, listener = connect(), Listener(connect(), "pgqueue_a")
    see(producer, "a", asleep_ms=60_000, tasks=False)
    create(producer, key="later", dequeue_at=2**62)
    assert listener.heard(producer) == []
    create(producer)
    assert listener.heard(producer) == [("pgqueue_a", "default")]
    create(producer)
    assert listener.heard(producer) == []


# Many


def test_a_bulk_with_keys_creates_each_once_and_returns_ids_in_order(session: Session) -> None:
    existing, _ = create(session, key="b")
    messages = [{"content": n, "unique_key": key} for n, key in enumerate(["c", "b", "a", "c", None])]
    ids = session.ids("pgqueue_message_create_many", messages=messages)
    assert len(ids) == 5
    assert ids[1] == existing
    assert ids[0] == ids[3]
    assert len(set(ids)) == 4
    assert {message.id: message.content for message in session.messages()} == {
        existing: "tea",
        ids[0]: 0,
        ids[2]: 2,
        ids[4]: 4,
    }


def test_two_calls_with_the_same_keys_in_opposite_orders_do_not_deadlock(connect: Connect) -> None:
    sessions = [connect() for _ in range(4)]
    keys = [f"key {n:03}" for n in range(40)]

    def create_often(session: Session, order: list[str]) -> int:
        for _ in range(10):
            session.ids("pgqueue_message_create_many", messages=[{"content": 1, "unique_key": key} for key in order])
            held = session.dequeue(40, worker=f"w{session.pid}")
            if held:
                session.ids("pgqueue_message_complete", **tokens(held))
        return 1

    orders = [keys, keys[::-1], keys[20:] + keys[:20], keys[::2] + keys[1::2]]
    assert concurrently([partial(create_often, *pair) for pair in zip(sessions, orders, strict=True)]) == [1] * 4
