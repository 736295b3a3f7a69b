"""Children of a message: their ends, and their end with it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import psycopg
import pytest

from tests.support.sessions import NOON, token

if TYPE_CHECKING:
    from tests.support.fixtures.sessions import Connect
    from tests.support.sessions import Session

pytestmark = pytest.mark.once


def parent_and_child(session: Session) -> tuple[Any, int]:
    session.create(task="parent")
    held = session.take(tasks=True)
    child = session.create(task="child")
    assert session.value("pgqueue_child_add", **token(held), child_id=child)
    return held, child


# pgqueue_child_add: a child belongs to who holds the parent


def test_a_late_worker_has_no_children(session: Session) -> None:
    session.create(task="parent")
    held = session.take(tasks=True)
    session.value("pgqueue_message_defer", **token(held))
    assert not session.value("pgqueue_child_add", **token(held), child_id=held.id + 1)
    assert session.rows("select from pgqueue_child") == []


# pgqueue_child_outcomes: how they have ended
# pgqueue_child_keep: also when the history is gone


def outcomes(session: Session, parent_id: int, *ids: int) -> list[tuple[str, Any]]:
    rows = session.rows("select * from pgqueue_child_outcomes(%s, %s)", (parent_id, list(ids)))
    return [(row.p_status, row.p_result) for row in rows]


def test_the_outcome_of_a_child_is_that_of_its_last_attempt(session: Session) -> None:
    held, child = parent_and_child(session)
    other = session.create(task="other")
    assert outcomes(session, held.id, child, other) == [("waiting", None), ("unknown", None)]
    for _ in range(2):
        taken = session.take(tasks=True)
        session.value("pgqueue_message_complete", id=taken.id, attempt=1, worker=taken.worker, result=5)
    assert outcomes(session, held.id, child, other) == [("succeeded", 5), ("unknown", None)]


def test_a_child_that_was_enqueued_while_the_clock_was_ahead_has_an_outcome(session: Session) -> None:
    session.set_clock(NOON + 3 * 86_400_000)
    held, child = parent_and_child(session)
    session.set_clock(NOON)
    session.ids("pgqueue_message_reschedule", ids=[child])
    assert outcomes(session, held.id, child) == [("waiting", None)]
    taken = session.take(tasks=True)
    session.value("pgqueue_message_complete", id=taken.id, attempt=1, worker=taken.worker, result=5)
    assert outcomes(session, held.id, child) == [("succeeded", 5)]


def test_a_child_that_was_deleted_has_no_outcome_and_takes_none_away(session: Session) -> None:
    held, child = parent_and_child(session)
    deleted = session.create(task="child")
    assert session.value("pgqueue_child_add", **token(held), child_id=deleted)
    session.rows("delete from pgqueue_message where id = %s", (deleted,))
    taken = session.take(tasks=True)
    session.value("pgqueue_message_complete", id=taken.id, attempt=1, worker=taken.worker, result=5)
    assert outcomes(session, held.id, deleted, child) == [("unknown", None), ("succeeded", 5)]


def test_outcomes_are_kept_before_a_day_of_the_history_is_dropped(session: Session) -> None:
    held, child = parent_and_child(session)
    taken = session.take(tasks=True)
    session.value("pgqueue_message_fail", **token(taken), error="trouble")
    session.rows("select pgqueue_child_keep((pgqueue_clock() at time zone 'utc')::date)")
    session.rows("delete from pgqueue_attempt")
    [row] = session.rows("select * from pgqueue_child_outcomes(%s, %s)", (held.id, [child]))
    assert (row.p_status, row.p_error_message) == ("failed", "trouble")


def test_who_waits_for_success_is_cancelled_before_the_history_of_a_failure_is_dropped(session: Session) -> None:
    failing, open_one = session.create(), session.create(dequeue_at=8_000_000_000_000)
    waiting = [
        session.value("pgqueue_message_create_after", after_ids=ids, content="tea", policy=policy, dequeue_at=at)
        for ids, policy, at in (
            ([failing, open_one], "succeeded", None),
            ([failing], "succeeded", 8_000_000_000_000),
            ([open_one], "succeeded", None),
            ([failing, open_one], "finished", None),
        )
    ]
    session.value("pgqueue_message_fail", **token(session.take()), error="trouble")
    session.value("pgqueue_message_settle")
    session.rows("select pgqueue_child_keep((pgqueue_clock() at time zone 'utc')::date)")
    assert [row.id for row in session.messages()] == [open_one, *waiting[2:]]
    for message_id in waiting[:2]:
        [cancelled] = session.history(message_id)
        assert (cancelled.status, cancelled.final) == ("cancelled", True)
        assert cancelled.error_message == f"message {failing} had to succeed first, but did not"


def test_a_day_is_prepared_ten_thousand_messages_at_a_time(session: Session) -> None:
    failing, open_one = session.create(), session.create(dequeue_at=8_000_000_000_000)
    session.rows(
        """
        insert into pgqueue_message (dequeue_at, content, in_line, after_policy, after_ids, awaited_id, checks)
        select 8000000000000, '1', false, 'succeeded', %s::bigint[], %s::bigint, 1 from generate_series(1, 10001)
        """,
        [[failing, open_one], open_one],
    )
    session.rows(
        """
        insert into pgqueue_child (message_id, parent_id, created_at)
        select %s, -n, pgqueue_clock() from generate_series(1, 10002) as n
        """,
        [failing],
    )
    session.value("pgqueue_message_fail", **token(session.take()))
    day = "(pgqueue_clock() at time zone 'utc')::date"
    kept = [session.one(f"select pgqueue_child_keep({day})") for _ in range(3)]
    assert kept == [20_000, 1 + 2, 0]
    assert [row.id for row in session.messages()] == [open_one]


def test_a_suspended_parent_is_ready_when_its_children_have_ended(session: Session) -> None:
    held, child = parent_and_child(session)
    session.value("pgqueue_message_suspend", **token(held), after_ids=[child])
    taken = session.take(tasks=True)
    assert taken.id == child
    session.value("pgqueue_message_complete", id=taken.id, attempt=1, worker=taken.worker)
    assert session.take(tasks=True).id == held.id


def test_a_message_does_not_wait_for_itself(session: Session) -> None:
    held, _ = parent_and_child(session)
    with pytest.raises(psycopg.errors.InvalidParameterValue, match="would wait for itself"):
        session.value("pgqueue_message_suspend", **token(held), after_ids=[held.id])


# pgqueue_child_cancel: with their parent


@pytest.mark.parametrize("is_running", [False, True])
def test_children_that_have_not_begun_are_cancelled_with_their_parent(session: Session, is_running: bool) -> None:
    held, child = parent_and_child(session)
    if is_running:
        session.value("pgqueue_message_cancel", **token(held))
    else:
        session.value("pgqueue_message_suspend", **token(held), after_ids=[child])
        session.rows("select pgqueue_message_cancel(%s::bigint)", (held.id,))
    assert session.messages() == []
    assert {attempt.status for attempt in session.history() if attempt.final} == {"cancelled"}


def test_a_child_that_has_begun_goes_on(session: Session) -> None:
    held, child = parent_and_child(session)
    session.take(tasks=True)
    session.value("pgqueue_message_cancel", **token(held))
    assert [message.id for message in session.messages()] == [child]


def test_a_parent_that_is_given_back_and_was_asked_to_stop_takes_its_children_with_it(session: Session) -> None:
    held, child = parent_and_child(session)
    session.rows("select pgqueue_message_request_cancel(%s)", ([held.id],))
    session.rows("select pgqueue_message_release(%s, %s, %s)", ([held.id], [held.attempt], held.worker))
    assert session.rows("select from pgqueue_message") == []
    assert outcomes(session, held.id, child) == [("cancelled", None)]


def test_days_before_the_children_are_not_locked(connect: Connect) -> None:
    """A server has no room for a lock of each day and each of its indexes, for many tasks at a time."""
    session = connect()
    held, child = parent_and_child(session)
    session.rows("select pgqueue_attempt_partition('2020-02-03')")
    session.rows("select pgqueue_step_partition('2020-02-03')")
    locked = "select count(*) from pg_locks where pid = pg_backend_pid() and relation::regclass::text like '%20200203%'"
    try:
        with session.connection.transaction():
            assert outcomes(session, held.id, child) == [("waiting", None)]
            since = (held.id, held.created_at)
            assert session.rows("select from pgqueue_step_load(%s, %s)", since) == []
            assert session.one("select pgqueue_step_result(%s, %s, 'one')", since) is None
            taken = session.take(tasks=True)
            session.value("pgqueue_message_complete", id=taken.id, attempt=1, worker=taken.worker, result=5)
            assert outcomes(session, held.id, child) == [("succeeded", 5)]
            assert session.one(locked) == 0
    finally:
        session.rows("drop table pgqueue_attempt_20200203, pgqueue_step_20200203")
        session.rows("delete from pgqueue_message")
        session.rows("delete from pgqueue_child")
