"""Rows of the tables, also those that are written by hand."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import psycopg
import pytest

from tests.sql.words import see
from tests.support.sessions import end_one, token

if TYPE_CHECKING:
    from tests.support.fixtures.sessions import Connect
    from tests.support.sessions import Session

# pgqueue_message: the table of messages: what a row may say, and the status that is computed from it


def insert(session: Session, **columns: Any) -> int:
    """A row written by hand."""
    columns = {"dequeue_at": 0, "content": "{}", **columns}
    names, values = ", ".join(columns), ", ".join(f"%({name})s" for name in columns)
    message_id: int = session.one(f"insert into pgqueue_message ({names}) values ({values}) returning id", columns)
    return message_id


REFUSED: list[tuple[dict[str, Any], str]] = [
    ({"unlock_at": 5}, "lock_whole"),
    ({"worker": "w1"}, "lock_whole"),
    ({"locked_at": "2024-05-01"}, "lock_whole"),
    ({"unlock_at": 5, "worker": "w1"}, "lock_whole"),
    ({"unlock_at": 5, "locked_at": "2024-05-01"}, "lock_whole"),
    ({"worker": "w1", "locked_at": "2024-05-01"}, "lock_whole"),
    ({"after_ids": [1]}, "after_whole"),
    ({"check_at": 5}, "awaited_of_after"),
    ({"awaited_id": 5}, "awaited_of_after"),
]


@pytest.mark.parametrize(("columns", "constraint"), REFUSED, ids=str)
def test_rows_that_contradict_themselves_are_refused(
    session: Session, columns: dict[str, Any], constraint: str
) -> None:
    with pytest.raises(psycopg.errors.CheckViolation, match=constraint):
        insert(session, **columns)


def test_rows_written_by_hand_are_worked_off_like_any_other(session: Session) -> None:
    minimal = insert(session)
    odd = insert(session, attempt=7, max_attempts=0, headers='"text"', dequeue_at=-(2**63), channel="")
    held_by_hand = insert(session, unlock_at=1, worker="", locked_at="2024-05-01", attempt=3)
    taken = session.dequeue(10)
    assert [message.id for message in taken] == [odd, minimal, held_by_hand]
    for message in taken:
        assert session.value("pgqueue_message_complete", **token(message)) is True
    assert len(session.history()) == 4, "three ends, and the attempt that was lost"


def test_a_message_without_attempts_fails_at_its_first_error(session: Session) -> None:
    insert(session, max_attempts=0)
    assert session.value("pgqueue_message_defer", **token(session.take()), error={"message": "no"}) == "failed"


# pgqueue_attempt: the history: finished attempts, in partitions by day


def test_ids_grow_over_all_partitions(session: Session) -> None:
    now = session.one("select pgqueue_to_epoch(now())")
    ended = [end_one(session, now + days * 86_400_000) for days in (1, 0, 400, 0)]
    assert [end.message_id for end in session.history()] == ended


def test_a_status_that_is_not_in_the_glossary_is_refused(session: Session) -> None:
    end_one(session)
    with pytest.raises(psycopg.errors.CheckViolation, match="pgqueue_attempt_status_known"):
        session.rows("update pgqueue_attempt set status = 'done'")


def test_all_partitions_have_the_constraints_of_the_history(session: Session) -> None:
    constraints = session.rows("""
        select c.conrelid, array_agg(pg_get_constraintdef(c.oid) order by pg_get_constraintdef(c.oid)) as definitions
        from pg_constraint c
        where c.contype = 'c' and (c.conrelid = 'pgqueue_attempt'::regclass or c.conrelid in (
            select inhrelid from pg_inherits where inhparent = 'pgqueue_attempt'::regclass))
        group by c.conrelid
    """)
    assert len(constraints) >= 10
    assert len({tuple(row.definitions) for row in constraints}) == 1


# pgqueue_worker: the table of workers: written by each for itself, read by those who wake one


def test_a_worker_that_excludes_no_queue_has_an_empty_list(session: Session) -> None:
    session.rows("insert into pgqueue_worker (id, pid, slots, hostname) values ('a', 1, 1, 'host')")
    [row] = session.rows("select queues, exclude_queues, asleep_until from pgqueue_worker")
    assert tuple(row) == (None, [], None)


def test_registrations_of_workers_do_not_wait_for_each_other(connect: Connect) -> None:
    first, second = connect(autocommit=False), connect(autocommit=False)
    for session, name in ((first, "a"), (second, "b")):
        session.rows("set lock_timeout = '100ms'")
        see(session, name)
        see(session, name, asleep_ms=1000)


# pgqueue_queue: what somebody has decided about a queue


def test_a_row_without_a_time_pauses_nothing(session: Session) -> None:
    session.rows("insert into pgqueue_queue (name) values ('mail')")
    session.create(queue="mail")
    assert session.take().queue == "mail"


# pgqueue_step: a row says what kind of step it is, and what happened
# pgqueue_event: a name with a payload


@pytest.mark.parametrize("row", ["'story', 'done'", "'step', 'over'"])
def test_a_step_that_says_something_else_is_refused(session: Session, row: str) -> None:
    with pytest.raises(psycopg.errors.CheckViolation, match="pgqueue_step_words_known"):
        session.rows(f"""
            insert into pgqueue_step (message_id, recorded_at, finished_at, attempt, name, kind, status)
            values (1, now(), now(), 1, 'one', {row})""")


# pgqueue_rollup: rows that an admin writes by hand must not break the sums of others


@pytest.mark.parametrize(
    "histogram",
    ["[]", "null", "5", '{"7": "1"}', '{"7": 1.5}', '{"7": -1}', '{"7": 1e30}', '{"7": [1]}', '{"a": 1}', '{"": 1}'],
)
def test_a_histogram_that_nobody_could_add_up_is_refused(session: Session, histogram: str) -> None:
    for column in ("wait_histogram", "run_histogram"):
        session.rows("savepoint before")
        with pytest.raises(psycopg.errors.CheckViolation, match="pgqueue_rollup_histograms_are_objects_of_counts"):
            rolled_up(session, **{column: histogram})
        session.rows("rollback to before")
    rolled_up(session, wait_histogram='{"-142": 1, "7": 2}')


def rolled_up(session: Session, **columns: str) -> None:
    columns = {"wait_histogram": "{}", "run_histogram": "{}", **columns}
    session.rows(
        """
        insert into pgqueue_rollup (
            minutes, starts_at, queue, succeeded, deferred, retried, failed, cancelled, lost, messages,
            message_attempts, wait_ms, run_ms, wait_histogram, run_histogram)
        values (5, now(), 'mail', 1, 0, 0, 0, 0, 0, 1, 1, 0, 0, %(wait_histogram)s, %(run_histogram)s)
        """,
        columns,
    )
