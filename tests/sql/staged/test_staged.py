"""Staged rows of Spark's tasks are enqueued whole, and once; left ones are deleted."""

from __future__ import annotations

import datetime as dt
from typing import TYPE_CHECKING
from uuid import UUID, uuid4

import psycopg
import pytest

from tests.sql.words import behind, see
from tests.support.sessions import Listener, concurrently

if TYPE_CHECKING:
    from tests.support.fixtures.sessions import Connect
    from tests.support.sessions import Session

BATCH = UUID(int=1)


# pgqueue_staged_enqueue: what Spark's tasks have staged is enqueued whole, and once


def stage(session: Session, rows: int = 3, batch: UUID = BATCH, **columns: object) -> UUID:
    """Rows of one task, with the contents 0, 1, 2, …"""
    token = uuid4()
    row = {"priority": 0, "queue": "default", **columns}
    session.rows(
        f"insert into pgqueue_staged (batch, token, content, {', '.join(row)}) "
        f"select %s, %s, to_jsonb(n), {', '.join(['%s'] * len(row))} from generate_series(0, %s) as n",
        [batch, token, *row.values(), rows - 1],
    )
    return token


def enqueue(session: Session, *tokens: UUID, rows: int = 3, run: str = "run", epoch: int = -1) -> int | None:
    found: int | None = session.value(
        "pgqueue_staged_enqueue", run_id=run, epoch=epoch, batch=BATCH, tokens=list(tokens), rows=rows
    )
    return found


def staged(session: Session) -> int:
    number: int = session.one("select count(*) from pgqueue_staged")
    return number


def test_rows_become_messages_and_the_ledger_records_the_run(session: Session) -> None:
    token = stage(session, queue="mail", task="shop.tasks.send", priority=7, dequeue_at=5, headers='{"a": 1}')
    assert enqueue(session, token) == 3
    assert [m.content for m in session.messages()] == [0, 1, 2]
    message = session.messages()[0]
    assert (message.queue, message.task, message.priority, message.dequeue_at) == ("mail", "shop.tasks.send", 7, 5)
    assert (message.headers, message.max_attempts, message.attempt) == ({"a": 1}, None, 0)
    [entry] = session.rows("select run_id, epoch, rows from pgqueue_ledger")
    assert tuple(entry) == ("run", -1, 3)
    assert staged(session) == 0


def test_a_run_in_the_ledger_enqueues_nothing_and_its_rows_are_deleted(session: Session) -> None:
    enqueue(session, stage(session))
    assert enqueue(session, stage(session)) is None
    assert len(session.messages()) == 3
    assert staged(session) == 0


def test_rows_that_spark_did_not_count_are_deleted(session: Session) -> None:
    speculative, counted = stage(session), stage(session)
    other = stage(session, batch=UUID(int=2))
    assert enqueue(session, counted) == 3
    assert len(session.messages()) == 3
    assert session.column("select distinct token from pgqueue_staged") == [other]
    assert speculative != counted


def test_epochs_of_a_stream_go_on_and_are_one_row_of_the_ledger(session: Session) -> None:
    assert enqueue(session, stage(session), epoch=0) == 3
    assert enqueue(session, stage(session), epoch=1) == 3
    assert enqueue(session, stage(session), epoch=1) is None
    assert enqueue(session, stage(session), epoch=0) is None
    [entry] = session.rows("select run_id, epoch, rows from pgqueue_ledger")
    assert tuple(entry) == ("run", 1, 6)


def test_rows_that_are_missing_are_an_error_and_nothing_happens(connect: Connect) -> None:
    session = connect()
    token = stage(session, rows=2)
    with pytest.raises(psycopg.errors.RaiseException, match="run run has staged 3 rows, and pgqueue_staged has 2"):
        enqueue(session, token)
    assert session.messages() == []
    assert session.rows("select from pgqueue_ledger") == []


def test_unique_keys_are_kept_and_channels_are_those_of_the_functions(session: Session) -> None:
    session.call("pgqueue_message_create_unique", unique_key="k", content="first")
    keyed = stage(session, rows=1, unique_key="k")
    fresh = stage(session, rows=1, unique_key="l", queue="mail", priority=3)
    lane = stage(session, rows=1, channel="tenant")
    assert enqueue(session, keyed, fresh, lane) == 3
    found = {(m.unique_key, m.channel, m.queue, m.priority) for m in session.messages()}
    assert found == {
        ("k", None, "default", 0),
        ("l", None, "mail", 3),
        (None, "tenant", "default", 0),
    }
    assert session.one("select content from pgqueue_message where unique_key = 'k'") == "first"


def test_a_channel_that_is_full_is_an_error_and_nothing_happens(connect: Connect) -> None:
    session = connect()
    session.value("pgqueue_channel_set", name="tenant", max_size=2)
    token = stage(session, channel="tenant")
    with pytest.raises(psycopg.errors.RaiseException, match="run run has 1 rows or more whose channel is full"):
        enqueue(session, token)
    assert session.messages() == []
    assert enqueue(session, stage(session, rows=2, channel="tenant"), rows=2) == 2


def test_more_keys_than_one_call_takes(session: Session) -> None:
    token = stage(session, rows=5001, task="shop.tasks.send")
    session.rows("update pgqueue_staged set unique_key = 'key ' || (content #>> '{}')")
    assert enqueue(session, token, rows=5001) == 5001
    assert session.one("select count(distinct unique_key) from pgqueue_message") == 5001


def test_contents_that_are_too_large_for_one_call_are_enqueued_by_several(session: Session) -> None:
    """PostgreSQL has room for 256 MB in a jsonb array."""
    token = stage(session, rows=18, channel="tenant")
    session.rows("update pgqueue_staged set content = to_jsonb(repeat('x', 15000000))")
    assert enqueue(session, token, rows=18) == 18


def test_a_writer_that_gives_up_while_its_rows_wait_for_keys_has_written_nothing(connect: Connect) -> None:
    """Its connection broke: the server goes on, and does not know."""
    other, session = connect(autocommit=False), connect()
    token = stage(session, rows=5001, task="shop.tasks.send")
    session.rows("update pgqueue_staged set unique_key = 'key ' || (content #>> '{}')")
    other.value("pgqueue_message_lock_keys", task="shop.tasks.send")
    other.value("pgqueue_staged_discard", batch=BATCH)
    with pytest.raises(psycopg.errors.RaiseException, match="rows of run run were deleted while it was enqueued"):
        behind(other, session, lambda: enqueue(session, token, rows=5001))
    assert (session.messages(), session.rows("select from pgqueue_ledger")) == ([], [])


def test_of_two_concurrent_enqueues_of_a_run_one_succeeds(connect: Connect) -> None:
    one, other = connect(), connect()
    first, second = stage(one), stage(other)
    answers = concurrently([lambda: enqueue(one, first), lambda: enqueue(other, second)])
    assert sorted(answers, key=str) == [3, None]
    assert len(one.messages()) == 3


def test_a_second_waits_for_the_first_and_goes_on_when_that_rolls_back(connect: Connect) -> None:
    one, other = connect(autocommit=False), connect()
    enqueue(one, stage(one))
    token = stage(other)
    assert behind(one, other, lambda: enqueue(other, token), commits=False) == 3
    assert len(other.messages()) == 3


def test_a_ready_row_wakes_a_sleeper_and_a_scheduled_one_does_not(connect: Connect) -> None:
    session, listener = connect(), Listener(connect(), "pgqueue_w1")
    see(session, "w1", queues=["mail"], asleep_ms=60_000)
    enqueue(session, stage(session, queue="mail", dequeue_at=2**50), run="later")
    assert listener.heard(session) == []
    enqueue(session, stage(session, queue="mail"), run="now")
    assert listener.heard(session) == [("pgqueue_w1", "mail")]


def test_a_replay_enqueues_each_message_of_the_history_once(session: Session) -> None:
    def replay(name: str, run: str, message_id: int) -> int | None:
        token = stage(session, rows=1, headers=f'{{"enqueued_again_from": {message_id}}}')
        found: int | None = session.value(
            "pgqueue_staged_enqueue", run_id=run, epoch=-1, batch=BATCH, tokens=[token], rows=1, replay=name
        )
        return found

    assert replay("replay", "one", 7) == 1
    assert replay("replay", "two", 8) == 1
    with session.connection.transaction(force_rollback=True), pytest.raises(psycopg.errors.RaiseException) as caught:
        replay("replay", "three", 7)
    assert "another run has replayed 1 of the messages of run three" in str(caught.value)
    assert replay("replay again", "four", 7) == 1
    assert len(session.messages()) == 3


# pgqueue_staged_discard: what runs have left behind goes


def left(session: Session) -> list[int]:
    return [batch.int for batch in session.column("select distinct batch from pgqueue_staged order by batch")]


def test_rows_of_a_failed_run_are_deleted_and_others_stay(session: Session) -> None:
    stage(session, batch=UUID(int=1))
    stage(session, batch=UUID(int=2))
    session.value("pgqueue_staged_discard", batch=UUID(int=1))
    assert left(session) == [2]


def test_rows_of_an_unfinished_run_are_deleted_after_a_week(session: Session) -> None:
    now = session.one("select now()")
    for batch, days in ((1, 8), (2, 6)):
        stage(session, batch=UUID(int=batch), staged_at=now - dt.timedelta(days=days))
    session.value("pgqueue_staged_discard")
    assert left(session) == [2]


def test_the_ledger_forgets_old_batches_and_never_a_stream(session: Session) -> None:
    for run, epoch, days in [("old", -1, 366), ("young", -1, 364), ("stream", 0, 3660)]:
        session.rows(
            "insert into pgqueue_ledger (run_id, epoch, rows, written_at) "
            "values (%s, %s, 1, now() - make_interval(days => %s))",
            [run, epoch, days],
        )
    session.value("pgqueue_staged_discard")
    assert session.column("select run_id from pgqueue_ledger order by 1") == ["stream", "young"]
