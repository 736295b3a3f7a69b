"""One message at a time holds a key: among consumers, long transactions and full tables."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import TYPE_CHECKING, Any

import psycopg
import pytest

from tests.sql.words import behind, behind_policy, see
from tests.support.cost import cost
from tests.support.sessions import NOON, SECONDS, Listener, concurrently, eventually, token, tokens

if TYPE_CHECKING:
    from tests.support.fixtures.sessions import Connect
    from tests.support.sessions import Session

ERROR = {"class": "builtins.OSError", "message": "no network"}
UNIQUE_INDEX, PRIMARY_KEY = "pgqueue_message_unique_key_ix", "pgqueue_message_pkey"
every_policy = pytest.mark.parametrize("on_conflict", ["keep", "replace", "debounce"])


# pgqueue_message_create_unique: one message at a time holds a key


def create(session: Session, content: Any = "tea", key: str = "invoice 7", **parameters: Any) -> tuple[int, bool]:
    """The id of the message that holds the key, and whether it is a new one."""
    [row] = session.call("pgqueue_message_create_unique", unique_key=key, content=content, **parameters)
    return row.p_id, row.p_created


@every_policy
def test_a_holder_that_row_level_security_hides_is_told_so(session: Session, on_conflict: str) -> None:
    """It looked for the holder for ever."""
    create(session)
    with (
        behind_policy(session, "pgqueue_message", "queue = 'acme'"),
        pytest.raises(psycopg.errors.InsufficientPrivilege, match=r"security hides .* the unique key 'invoice 7'"),
    ):
        create(session, queue="acme", on_conflict=on_conflict)


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


@every_policy
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


@every_policy
def test_a_running_message_stays_unchanged(session: Session, on_conflict: str) -> None:
    create(session, "first")
    held = session.take()
    assert create(session, "second", on_conflict=on_conflict, dequeue_at=7) == (held.id, False)
    assert session.message(held.id) == held


# With others


def test_a_message_that_ends_meanwhile_frees_its_key(connect: Connect) -> None:
    worker, producer = connect(autocommit=False), connect()
    create(producer)
    worker.value("pgqueue_message_complete", **token(worker.take(worker="w1")))
    message_id, created = behind(worker, producer, partial(create, producer))
    assert created
    assert [message.id for message in producer.messages()] == [message_id]


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


# When the key is free


@pytest.mark.parametrize("end", ["complete", "fail", "cancel"])
def test_every_final_end_frees_the_key(session: Session, end: str) -> None:
    first, _ = create(session)
    session.value(f"pgqueue_message_{end}", **token(session.take()))
    second, created = create(session)
    assert created
    assert second != first


def test_until_finished_holds_the_key_through_retries_and_lost_attempts(session: Session) -> None:
    session.set_clock(NOON)
    first, _ = create(session, max_attempts=3)
    session.value("pgqueue_message_defer", **token(session.take()), error=ERROR)
    assert create(session) == (first, False)
    session.take()
    session.set_clock(NOON + 60_000)
    session.value("pgqueue_message_expire")
    assert create(session) == (first, False)
    assert session.value("pgqueue_message_defer", **token(session.take()), error=ERROR) == "failed"
    assert create(session)[1]


def test_a_retry_after_its_key_is_free_does_not_conflict(session: Session) -> None:
    create(session, "first", until_started=True)
    held = session.take()
    second, _ = create(session, "second", until_started=True)
    assert session.value("pgqueue_message_defer", **token(held), error=ERROR) == "retried"
    assert create(session) == (second, False)
    assert {message.content for message in session.dequeue(5)} == {"first", "second"}


@every_policy
@pytest.mark.parametrize("commits", [True, False])
def test_an_enqueue_waits_for_an_uncommitted_stop_request(connect: Connect, on_conflict: str, *, commits: bool) -> None:
    asking, producer = connect(autocommit=False), connect()
    first, _ = create(producer, "first")
    producer.take(worker="w1")
    asking.ids("pgqueue_message_request_cancel", ids=[first])
    second = partial(create, producer, "second", on_conflict=on_conflict)
    holder, created = behind(asking, producer, second, commits=commits)
    assert created is commits
    assert (holder == first) is not commits
    assert create(producer, "third") == (holder, False)


def test_replace_clears_state_and_errors_of_earlier_attempts(session: Session) -> None:
    message_id, _ = create(session, "first", max_attempts=9)
    session.value("pgqueue_message_defer", **token(session.take()), state={"page": 3}, error=ERROR)
    create(session, "second", on_conflict="replace", until_started=True)
    message = session.message(message_id)
    assert (message.state, message.last_error, message.progress) == (None, None, None)
    assert (message.content, message.unique_until_started) == ("second", True)


@pytest.mark.parametrize("error", [ERROR, None], ids=["retried", "deferred"])
def test_a_replacing_message_has_all_its_attempts(session: Session, error: Any) -> None:
    create(session, "first", max_attempts=4)
    for _ in range(3):
        session.value("pgqueue_message_defer", **token(session.take()), error=error)
    create(session, "second", on_conflict="replace", max_attempts=2)
    assert session.value("pgqueue_message_defer", **token(session.take()), error=ERROR) == "retried"
    assert session.value("pgqueue_message_defer", **token(session.take()), error=ERROR) == "failed"
    create(session, "third", max_attempts=4)
    session.value("pgqueue_message_defer", **token(session.take()))
    create(session, "fourth", on_conflict="replace", max_attempts=None)
    assert session.take().max_attempts is None


# Who waits for whom


@every_policy
def test_a_conflict_with_a_running_message_blocks_no_other_session(connect: Connect, on_conflict: str) -> None:
    """His transaction may be a long one, and a worker has one thread for the ends of all its attempts."""
    caller, worker = connect(autocommit=False), connect()
    create(worker, "first")
    held = worker.take(worker="w1")
    assert create(caller, "second", on_conflict=on_conflict) == (held.id, False)
    worker.rows("set lock_timeout = '2s'")
    assert worker.value("pgqueue_message_heartbeat", **token(held))
    assert worker.value("pgqueue_message_complete", **token(held))


@every_policy
def test_an_uncommitted_change_is_neither_dequeued_nor_waited_for(connect: Connect, on_conflict: str) -> None:
    caller, worker = connect(autocommit=False), connect()
    create(worker, "first")
    create(caller, "second", on_conflict=on_conflict)
    worker.rows("set lock_timeout = '2s'")
    assert len(worker.dequeue()) == (1 if on_conflict == "keep" else 0)
    caller.commit()
    assert len(worker.dequeue()) == (0 if on_conflict == "keep" else 1)


@pytest.mark.parametrize("commits", [True, False], ids=["commit", "rollback"])
@every_policy
def test_an_enqueue_waits_for_an_uncommitted_one_with_its_key(
    connect: Connect, on_conflict: str, *, commits: bool
) -> None:
    first, producer = connect(autocommit=False), connect()
    message_id, _ = create(first, "first")
    second = partial(create, producer, "second", on_conflict=on_conflict, dequeue_at=7)
    holder, created = behind(first, producer, second, commits=commits)
    assert created is not commits
    assert (holder == message_id) is commits
    [message] = producer.messages()
    assert message.content == ("first" if commits and on_conflict != "replace" else "second")
    assert (message.dequeue_at == 7) is not (commits and on_conflict == "keep")


@every_policy
def test_a_message_that_ends_right_after_the_conflict_leaves_the_key_free(connect: Connect, on_conflict: str) -> None:
    """Between the insert that met it and the look at it: a trigger holds the caller up there."""
    caller, worker, witness = connect(), connect(), connect()
    first, _ = create(worker, "first")
    held = token(worker.take(worker="w1"))
    worker.rows("select pg_advisory_lock(7)")
    witness.rows(HOLD_UP)
    try:
        with ThreadPoolExecutor(1) as pool:
            answer = pool.submit(create, caller, "second", on_conflict=on_conflict)
            eventually(lambda: witness.waits_for_a_lock(caller))
            assert worker.value("pgqueue_message_complete", **held)
            worker.rows("select pg_advisory_unlock(7)")
            holder, created = answer.result(SECONDS)
    finally:
        worker.rows("select pg_advisory_unlock_all()")
        witness.rows("drop trigger hold_up on pgqueue_message")
        witness.rows("drop function hold_up()")
    assert created
    assert holder > first
    assert [message.content for message in witness.messages()] == ["second"]


HOLD_UP = """
create function hold_up() returns trigger language plpgsql as $$
begin
    perform pg_advisory_xact_lock_shared(7);
    return null;
end
$$;
create trigger hold_up after insert on pgqueue_message for each statement execute function hold_up()
"""


@pytest.mark.parametrize("on_conflict", ["replace", "debounce"])
def test_a_message_that_begins_right_after_it_was_read_stays_unchanged(connect: Connect, on_conflict: str) -> None:
    caller, worker = connect(), connect(autocommit=False)
    first, _ = create(caller, "first")
    worker.take(worker="w1")
    second = partial(create, caller, "second", on_conflict=on_conflict)
    assert behind(worker, caller, second) == (first, False)
    [message] = caller.messages()
    assert (message.content, message.worker) == ("first", "w1")


@every_policy
@pytest.mark.parametrize("until_started", [False, True])
def test_with_concurrent_consumers_every_key_is_held_once(
    connect: Connect, on_conflict: str, *, until_started: bool
) -> None:
    producers, consumers = [connect() for _ in range(3)], [connect() for _ in range(2)]
    created: list[int] = []
    done: list[int] = []
    finished: list[Session] = []

    def produce(session: Session) -> None:
        for n in range(120):
            message_id, new = create(session, n, f"k{n % 3}", on_conflict=on_conflict, until_started=until_started)
            assert message_id, "somebody holds the key, or did"
            if new:
                created.append(message_id)
        finished.append(session)

    def consume(session: Session) -> None:
        while len(finished) < len(producers) or session.messages():
            done.extend(m.id for m in session.dequeue(2) if session.value("pgqueue_message_complete", **token(m)))

    concurrently([partial(produce, each) for each in producers] + [partial(consume, each) for each in consumers], 60)
    assert sorted(done) == sorted(created)
    assert len(set(created)) == len(created)


def test_under_stricter_isolation_a_key_taken_meanwhile_is_a_serialization_failure(
    strict: Session, connect: Connect
) -> None:
    other = connect()
    strict.rows("select count(*) from pgqueue_message")  # the transaction sees the queue as it is now
    first, _ = create(other)
    strict.rows("set local statement_timeout = '10s'")
    with pytest.raises(psycopg.errors.SerializationFailure):
        create(strict)
    strict.rollback()
    assert create(strict) == (first, False)


# Waking, and what it costs


def test_a_message_made_ready_by_a_conflict_wakes_a_sleeper(connect: Connect) -> None:
    producer, listener = connect(), Listener(connect(), "pgqueue_w1")
    see(producer, "w1", asleep_ms=60_000)
    for on_conflict in ("replace", "debounce"):
        create(producer, dequeue_at=2**62)
        create(producer, on_conflict=on_conflict, dequeue_at=2**62)
        assert listener.heard(producer) == []
        create(producer, on_conflict=on_conflict)
        assert listener.heard(producer) == [("pgqueue_w1", "default")]


@every_policy
@pytest.mark.parametrize("key", ["k7", "new"])
def test_the_key_is_looked_up_in_its_index(connect: Connect, on_conflict: str, key: str) -> None:
    session = connect()
    call = (
        "select * from pgqueue_message_create_unique("
        f"'{key}', '{{}}', p_on_conflict => '{on_conflict}', p_dequeue_at => 9223372036854775807)"
    )
    cost(session, call)  # makes its plans for an empty table
    session.rows("""
        insert into pgqueue_message (dequeue_at, content, unique_key)
        select 1, '{}', 'k' || n from generate_series(1, 5000) as n
    """)
    each = cost(session, call)
    assert each.read <= {UNIQUE_INDEX, PRIMARY_KEY}, each
    assert UNIQUE_INDEX in each.read or key == "new", each
    assert sum(each.entries.values()) <= 10, each
    assert each.buffers < 60, each
