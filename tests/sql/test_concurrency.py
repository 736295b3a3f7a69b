"""Many producers and consumers at once: nothing is lost, nothing is done twice, nobody waits for anybody."""

from __future__ import annotations

import random
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import TYPE_CHECKING, Any

import psycopg
import pytest

from tests.sql.words import behind
from tests.support.sessions import concurrently, eventually, token, tokens

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from tests.support.fixtures.sessions import Connect
    from tests.support.sessions import Session


Attempt = tuple[int, int]


def drain(session: Session, work: Callable[[Session, list[Any]], None], **parameters: Any) -> list[Attempt]:
    """Takes and works on messages until the queue is empty, and answers the attempts that this consumer held."""
    sizes = random.Random(session.pid)
    held: list[Attempt] = []
    while True:
        batch = session.dequeue(sizes.randint(1, 9), **parameters)
        held += [(message.id, message.attempt) for message in batch]
        if batch:
            work(session, batch)
        elif not session.one("select exists (select from pgqueue_message)"):
            return held


def complete(session: Session, batch: list[Any]) -> None:
    assert len(session.ids("pgqueue_message_complete", **tokens(batch))) == len(batch)


def test_no_two_consumers_ever_hold_one_attempt_and_all_are_held(connect: Connect) -> None:
    consumers = [connect() for _ in range(8)]
    ids = consumers[0].create_batch(2000)
    ids += consumers[0].ids(
        "pgqueue_message_create_many",
        messages=[{"content": n, "queue": f"q{n % 5}", "priority": n % 3} for n in range(500)],
    )

    held = concurrently([partial(drain, c, complete) for c in consumers], seconds=100)

    together = [attempt for attempts in held for attempt in attempts]
    assert len(together) == len(ids)
    assert set(together) == {(message_id, 1) for message_id in ids}
    assert sorted(end.message_id for end in consumers[0].history()) == ids
    assert sum(1 for attempts in held if attempts) > 1, "they did work side by side"


def test_every_attempt_of_messages_that_come_back_is_held_once(connect: Connect) -> None:
    consumers = [connect() for _ in range(6)]
    ids = consumers[0].create_batch(600, max_attempts=3)

    def work(session: Session, batch: list[Any]) -> None:
        for message in batch:
            match message.attempt, message.content % 4:
                case (1, 0) | (2, 0):
                    assert session.value("pgqueue_message_defer", **token(message), error={"message": "once more"})
                case (1, 1):
                    assert session.value("pgqueue_message_defer", **token(message), state={"seen": 1})
                case _:
                    complete(session, [message])

    held = concurrently([partial(drain, c, work) for c in consumers], seconds=100)

    attempts = {0: 3, 1: 2, 2: 1, 3: 1}
    expected = {(id_, attempt) for n, id_ in enumerate(ids) for attempt in range(1, attempts[n % 4] + 1)}
    together = [attempt for each in held for attempt in each]
    assert len(together) == len(expected)
    assert set(together) == expected
    ends = consumers[0].history()
    assert {(end.message_id, end.attempt) for end in ends} == expected
    assert sorted(end.message_id for end in ends if end.final) == ids
    assert Counter(end.status for end in ends) == {"retried": 300, "deferred": 150, "succeeded": 600}


def test_locks_that_run_out_all_the_time_lose_no_message_and_complete_none_twice(connect: Connect) -> None:
    consumers = [connect() for _ in range(6)]
    ids = consumers[0].create_batch(500, max_attempts=1_000_000)
    completed: list[int] = []

    def work(session: Session, batch: list[Any]) -> None:
        completed.extend(session.ids("pgqueue_message_complete", **tokens(batch)))

    held = concurrently([partial(drain, c, work, lock_ms=3) for c in consumers], seconds=100)

    assert sorted(completed) == ids
    together = [attempt for each in held for attempt in each]
    assert len(together) == len(set(together)), "an attempt was held twice"
    ends = consumers[0].history()
    assert sorted(end.message_id for end in ends if end.status == "succeeded") == ids
    assert Counter(end.status for end in ends) == {"succeeded": 500, **_lost(len(together) - 500)}


def _lost(number: int) -> dict[str, int]:
    return {"lost": number} if number else {}


def test_a_committed_message_is_done_once_and_a_rolled_back_one_never(connect: Connect) -> None:
    producers, consumers = [connect(autocommit=False) for _ in range(4)], [connect() for _ in range(4)]
    consumers[0].create("last", queue="end")  # the consumers go on until it is taken away, after the producers
    done: list[Any] = []

    def produce(number: int) -> list[Any]:
        committed = []
        for n in range(75):
            contents = [[number, n, part] for part in range(3)]
            for content in contents:
                producers[number].create(content, priority=n % 2)
            if n % 3:
                committed += contents
                producers[number].commit()
            else:
                producers[number].rollback()
        return committed

    def work(session: Session, batch: list[Any]) -> None:
        complete(session, batch)
        done.extend(message.content for message in batch)

    def consume(session: Session) -> list[Any]:
        drain(session, work, queues=["default"])
        return []

    def produce_all() -> list[Any]:
        try:
            return [content for part in concurrently([partial(produce, n) for n in range(4)], 60) for content in part]
        finally:
            producers[0].rows("delete from pgqueue_message where queue = 'end'")
            producers[0].commit()

    everybody: list[Callable[[], list[Any]]] = [produce_all, *[partial(consume, consumer) for consumer in consumers]]
    committed, *_ = concurrently(everybody, seconds=100)

    assert len(committed) == 4 * 50 * 3
    assert sorted(done) == sorted(committed)


@pytest.mark.parametrize("many", [False, True])
def test_a_completion_that_waited_for_a_heartbeat_counts(connect: Connect, many: bool) -> None:
    """A heartbeat moves the row: an end that went by the place of the row (ctid) would miss it."""
    beating, completing, witness = connect(autocommit=False), connect(), connect()
    witness.create()
    held = witness.take(worker="w1")
    beating.value("pgqueue_message_heartbeat", **token(held))

    given = tokens([held]) if many else token(held)
    done = behind(beating, completing, lambda: completing.ids("pgqueue_message_complete", **given))
    assert done == [held.id if many else True]
    assert witness.messages() == []


def test_consumers_do_not_wait_for_each_other(connect: Connect) -> None:
    consumers = [connect(autocommit=False) for _ in range(5)]
    consumers[0].create_batch(5)
    consumers[0].commit()
    for consumer in consumers:
        consumer.rows("set lock_timeout = '100ms'")
    assert [consumer.take().content for consumer in consumers] == [0, 1, 2, 3, 4], "all of them uncommitted"
    assert consumers[4].dequeue() == []


@pytest.mark.parametrize("channel", [None, "acme"])
def test_a_claim_takes_what_somebody_changed_after_its_snapshot(connect: Connect, channel: str | None) -> None:
    """By the place of the row (ctid) it would miss the message, and leave it locked until its transaction ends."""
    changing, claiming = connect(), connect()
    message_id = changing.create(channel=channel)
    changing.rows("""
        create function pause() returns trigger language plpgsql as $$
        begin
            if current_setting('application_name') = 'claiming' then
                perform pg_advisory_xact_lock(16);
            end if;
            return null;
        end $$;
        create trigger pause before update on pgqueue_message for each statement execute function pause()
    """)
    try:
        claiming.rows("set application_name = 'claiming'")
        changing.rows("select pg_advisory_lock(16)")
        with ThreadPoolExecutor(1) as pool:
            claim = pool.submit(claiming.dequeue)
            try:
                eventually(lambda: changing.waits_for_a_lock(claiming))  # its snapshot is taken, no row is locked
                changing.rows("update pgqueue_message set headers = '{\"changed\": true}'")
            finally:
                changing.rows("select pg_advisory_unlock(16)")
            [claimed] = claim.result(60)
    finally:
        changing.rows("drop trigger pause on pgqueue_message; drop function pause()")
    assert (claimed.id, claimed.attempt, claimed.headers) == (message_id, 1, {"changed": True})


def test_a_consumer_killed_in_its_transaction_releases_its_message_at_once(connect: Connect) -> None:
    doomed, other = connect(autocommit=False), connect()
    message_id = other.create()
    doomed.take()
    assert other.dequeue() == []
    other.rows("select pg_terminate_backend(%s, 10000)", [doomed.pid])
    held = other.take()
    assert (held.id, held.attempt) == (message_id, 1), "the attempt was never committed"
    with pytest.raises(psycopg.OperationalError):
        doomed.rows("select 1")


# Row locks are taken in one order, that of the ids, so that calls never deadlock with each other


WORKER = "w1"
FUNCTIONS_FOR_HELD = ("pgqueue_message_complete", "pgqueue_message_heartbeat", "pgqueue_message_release")
FUNCTIONS_FOR_RUNNING = ("pgqueue_message_request_cancel",)
FUNCTIONS_FOR_WAITING = ("pgqueue_message_cancel", "pgqueue_message_reschedule")
FUNCTIONS = (*FUNCTIONS_FOR_HELD, *FUNCTIONS_FOR_RUNNING, *FUNCTIONS_FOR_WAITING)


def messages_for(session: Session, function: str, number: int) -> list[int]:
    """Messages as the function wants them: held or waiting."""
    ids = session.create_batch(number)
    if function not in FUNCTIONS_FOR_WAITING:
        session.dequeue(number, worker=WORKER)
    return ids


def call(session: Session, function: str, ids: Sequence[int]) -> list[int]:
    parameters: dict[str, Any] = {"ids": list(ids)}
    if function in FUNCTIONS_FOR_HELD:
        parameters |= {"attempts": [1] * len(ids), "worker": WORKER}
    return session.ids(function, **parameters)


@pytest.mark.parametrize("function", FUNCTIONS)
@pytest.mark.parametrize("order", [(0, 1, 2, 3, 4), (4, 3, 2, 1, 0), (3, 0, 4, 2, 1)])
def test_a_call_that_waits_for_a_row_holds_only_the_rows_before_it(
    connect: Connect, function: str, order: tuple[int, ...]
) -> None:
    holder, caller, witness = connect(autocommit=False), connect(), connect()
    ids = messages_for(witness, function, 5)
    holder.rows("select from pgqueue_message where id = %s for update", [ids[2]])

    def locked_behind_the_wait() -> list[int]:
        eventually(lambda: witness.waits_for_a_lock(caller))
        free = witness.column("select id from pgqueue_message order by id for update skip locked")
        holder.rollback()
        return free

    waiting_call: Callable[[], list[int]] = partial(call, caller, function, [ids[n] for n in order])
    answer, free = concurrently([waiting_call, locked_behind_the_wait])

    assert free == ids[3:]
    assert sorted(answer) == ids


def test_a_dequeue_waits_for_none_of_them(connect: Connect) -> None:
    ending, consumer = connect(autocommit=False), connect()
    ids = consumer.create_batch(10)
    consumer.dequeue(5, worker=WORKER)
    call(ending, "pgqueue_message_complete", ids[:2])
    call(ending, "pgqueue_message_release", ids[2:4])
    call(ending, "pgqueue_message_heartbeat", ids[4:5])
    call(ending, "pgqueue_message_cancel", ids[5:6])
    call(ending, "pgqueue_message_reschedule", ids[6:7])
    consumer.rows("set lock_timeout = '100ms'")
    assert [message.id for message in consumer.dequeue(10)] == ids[7:]
    ending.commit()
    assert [message.id for message in consumer.dequeue(10)] == [*ids[2:4], ids[6]]


# The queue inside transactions of the application that have a higher isolation level


def test_a_single_session_works_at_every_isolation_level(strict: Session, connect: Connect) -> None:
    strict.create_batch(4)
    strict.commit()
    held = strict.dequeue(4, worker="w1")
    strict.commit()
    strict.ids("pgqueue_message_heartbeat", **tokens(held))
    strict.value("pgqueue_message_complete", **token(held[0]))
    strict.value("pgqueue_message_defer", **token(held[1]))
    strict.value("pgqueue_message_fail", **token(held[2]))
    strict.ids("pgqueue_message_release", **tokens(held[3:]))
    strict.commit()
    other = connect()
    assert [message.id for message in other.messages()] == [held[1].id, held[3].id]
    assert [end.status for end in other.history()] == ["succeeded", "deferred", "failed"]


def test_a_message_taken_meanwhile_is_a_serialization_failure_and_a_retry_works(
    strict: Session, connect: Connect
) -> None:
    other = connect()
    first, second = other.create_batch(2)
    strict.rows("select count(*) from pgqueue_message")  # the transaction sees the queue as it is now
    taken = other.take()

    with pytest.raises(psycopg.errors.SerializationFailure):
        strict.dequeue()
    strict.rollback()

    assert taken.id == first
    assert strict.take().id == second
    strict.commit()
    assert {message.attempt for message in other.messages()} == {1}


def test_a_message_that_another_session_is_taking_is_skipped(strict: Session, connect: Connect) -> None:
    other = connect(autocommit=False)
    first, second = other.create_batch(2)
    other.commit()
    assert other.take().id == first
    assert strict.take().id == second


def test_consumers_that_try_again_after_errors_do_everything_once(strict: Session, connect: Connect) -> None:
    other, consumers = connect(), [strict, *(connect(autocommit=False) for _ in range(3))]
    for consumer in consumers:
        consumer.connection.isolation_level = strict.connection.isolation_level
    ids = other.create_batch(120)

    def consume(session: Session) -> list[int]:
        done: list[int] = []
        while (completed := _in_one_transaction(session)) is not None:
            done += completed
        return done

    done = concurrently([partial(consume, consumer) for consumer in consumers], seconds=100)

    assert sorted(message_id for each in done for message_id in each) == ids
    assert sorted(end.message_id for end in other.history()) == ids


def _in_one_transaction(session: Session) -> list[int] | None:
    """Takes and completes a few messages; none, when the transaction has to be tried again; None at the end."""
    try:
        batch: list[Any] = session.dequeue(3, worker=f"w{session.pid}")
        completed = session.ids("pgqueue_message_complete", **tokens(batch)) if batch else []
        more = session.one("select exists (select from pgqueue_message)")
        session.commit()
    except psycopg.errors.SerializationFailure:
        session.rollback()
        return []
    return completed if completed or more else None
