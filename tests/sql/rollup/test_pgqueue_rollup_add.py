"""The figures of ended attempts count each attempt once, whenever it is committed."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

import psycopg
import pytest

from django_pgqueue.values import histogram
from tests.support.sessions import NOON, concurrently, end_one, token

if TYPE_CHECKING:
    from tests.support.fixtures.sessions import Connect
    from tests.support.sessions import Session

pytestmark = pytest.mark.once

MINUTE_MS = 60_000


def add(session: Session, **parameters: Any) -> bool:
    added: bool = session.value("pgqueue_rollup_add", **parameters)
    return added


def add_all(session: Session, **parameters: Any) -> int:
    calls = 1
    while add(session, **parameters):
        calls += 1
    return calls


def figures(session: Session, minutes: int = 60) -> list[Any]:
    return session.rows("select * from pgqueue_rollup where minutes = %s order by starts_at, queue, task", [minutes])


def succeeded(session: Session, minutes: int = 60) -> int:
    return sum(row.succeeded for row in figures(session, minutes))


@pytest.fixture
def session(connect: Connect) -> Session:
    """A session that commits: what runs is not counted."""
    return connect()


@pytest.fixture
def at_noon(session: Session) -> Session:
    session.set_clock(NOON)
    add_all(session)
    return session


def test_attempts_are_counted_by_queue_task_hour_and_five_minutes(at_noon: Session) -> None:
    for minute, queue, task in [
        (0, "mail", "a"),
        (1, "mail", "a"),
        (7, "mail", "a"),
        (7, "mail", None),
        (90, "b", "a"),
    ]:
        at_noon.set_clock(NOON + minute * MINUTE_MS)
        at_noon.create(queue=queue, task=task, dequeue_at=0)
        at_noon.value("pgqueue_message_complete", **token(at_noon.take(queues=[queue], tasks=task is not None)))
    add_all(at_noon)
    assert [(row.queue, row.task, row.succeeded, row.messages) for row in figures(at_noon)] == [
        ("mail", "a", 3, 3),
        ("mail", None, 1, 1),
        ("b", "a", 1, 1),
    ]
    assert [(row.queue, row.task, row.succeeded) for row in figures(at_noon, 5)] == [
        ("mail", "a", 2),
        ("mail", "a", 1),
        ("mail", None, 1),
        ("b", "a", 1),
    ]


def test_waits_and_runs_are_histograms_as_the_reports_have_them(at_noon: Session) -> None:
    for wait_ms, run_ms in [(0, 10), (1500, 10), (1500, 2000)]:
        at_noon.set_clock(NOON)
        at_noon.create(task="a")
        at_noon.set_clock(NOON + wait_ms)
        held = at_noon.take(tasks=True)
        at_noon.set_clock(NOON + wait_ms + run_ms)
        at_noon.value("pgqueue_message_complete", **token(held))
        add_all(at_noon)
    [row] = figures(at_noon)
    assert row.wait_histogram == {str(histogram.bucket(0)): 1, str(histogram.bucket(1500)): 2}
    assert row.run_histogram == {str(histogram.bucket(10)): 2, str(histogram.bucket(2000)): 1}
    assert (row.wait_ms, row.run_ms) == pytest.approx((3000, 2020))


def test_each_way_to_end_has_its_count(at_noon: Session) -> None:
    at_noon.create_batch(4, task="a")
    done, failed, later, suspended = (at_noon.take(tasks=True) for _ in range(4))
    at_noon.value("pgqueue_message_complete", **token(done))
    at_noon.value("pgqueue_message_fail", **token(failed), error="no")
    at_noon.value("pgqueue_message_defer", **token(later), dequeue_at=NOON)
    at_noon.value("pgqueue_message_cancel", ids=[later.id])
    at_noon.value("pgqueue_message_suspend", **token(suspended), name="tomorrow", kind="sleep", until=NOON + MINUTE_MS)
    add_all(at_noon)
    [row] = figures(at_noon)
    assert (row.succeeded, row.failed, row.deferred, row.cancelled, row.retried, row.lost) == (1, 1, 2, 1, 0, 0)


def test_an_attempt_is_counted_once(at_noon: Session) -> None:
    end_one(at_noon, NOON)
    add_all(at_noon)
    add_all(at_noon)
    assert succeeded(at_noon) == 1


def test_an_attempt_that_is_committed_late_is_counted(at_noon: Session, connect: Connect) -> None:
    late = connect(autocommit=False)
    end_one(late, NOON)
    end_one(at_noon, NOON)
    add_all(at_noon)
    counted_before = succeeded(at_noon)
    late.commit()
    add_all(at_noon)
    assert counted_before <= 1
    assert succeeded(at_noon) == 2


def test_a_long_transaction_does_not_hold_the_figures_up(at_noon: Session, connect: Connect) -> None:
    long = connect(autocommit=False)
    end_one(long, NOON)
    end_one(at_noon, NOON)
    add_all(at_noon)  # the long transaction is young still
    for ended in (2, 3, 4):
        end_one(at_noon, NOON)
        add_all(at_noon)
        assert succeeded(at_noon) == ended
    long.commit()
    add_all(at_noon)
    assert succeeded(at_noon) == 5


def test_an_attempt_that_is_rolled_back_is_not_counted(at_noon: Session, connect: Connect) -> None:
    long = connect(autocommit=False)
    end_one(long, NOON)
    add_all(at_noon)
    add_all(at_noon)
    long.rollback()
    end_one(at_noon, NOON)
    add_all(at_noon)
    assert succeeded(at_noon) == 1


def test_one_call_counts_a_part_of_a_long_history(at_noon: Session) -> None:
    for _ in range(25):
        end_one(at_noon, NOON)
    assert add(at_noon, most=10)
    assert 10 <= succeeded(at_noon) <= 12
    assert add_all(at_noon, most=10) >= 2
    assert succeeded(at_noon) == 25


def test_the_history_of_yesterday_is_counted_at_the_first_call(session: Session) -> None:
    for days in (3, 1, 0):
        end_one(session, NOON - days * 24 * 60 * MINUTE_MS)
    add_all(session)
    assert [row.succeeded for row in figures(session)] == [1, 1]


def test_one_session_counts_and_the_others_return_at_once(at_noon: Session, connect: Connect) -> None:
    for _ in range(20):
        end_one(at_noon, NOON)
    sessions = [connect() for _ in range(3)]
    for one in sessions:
        one.set_clock(NOON)
    concurrently([lambda one=one: add_all(one, most=3) for one in sessions])  # type: ignore[misc]
    add_all(at_noon)
    assert succeeded(at_noon) == 20


def test_it_waits_between_two_calls(at_noon: Session) -> None:
    end_one(at_noon, NOON + 1000)
    add_all(at_noon, every_seconds=50)
    assert not figures(at_noon)
    at_noon.set_clock(NOON + MINUTE_MS)
    add_all(at_noon, every_seconds=50)
    assert succeeded(at_noon) == 1


def test_tables_that_were_restored_into_another_cluster_are_counted_from_then_on(at_noon: Session) -> None:
    at_noon.rows("update pgqueue_rollup_position set newest_id = 4e18, transaction_id = 4e18")
    add_all(at_noon)
    end_one(at_noon, NOON)
    add_all(at_noon)
    assert succeeded(at_noon) == 1


@pytest.mark.parametrize("parameters", [{"most": 0}, {"every_seconds": -1}])
def test_a_number_out_of_range_is_refused(session: Session, parameters: dict[str, int]) -> None:
    with pytest.raises(psycopg.errors.InvalidParameterValue, match=re.escape("p_most is")):
        add(session, **parameters)


def test_days_that_are_not_counted_are_not_locked(connect: Connect) -> None:
    """Nor at the sixth call of a session, when PostgreSQL tries a plan for any time."""
    session = connect()
    session.rows("select pgqueue_attempt_partition('2020-02-03')")
    locked = "select count(*) from pg_locks where pid = pg_backend_pid() and relation::regclass::text like '%20200203%'"
    try:
        with session.connection.transaction():
            for _ in range(7):
                session.value("pgqueue_rollup_add")
            assert session.one(locked) == 0
    finally:
        session.rows("drop table pgqueue_attempt_20200203")
        session.rows("delete from pgqueue_rollup_position")


def test_a_task_without_a_name_counts_as_a_raw_message(at_noon: Session) -> None:
    """Their figures have one key."""
    for task in ("", None):
        at_noon.create(task=task, dequeue_at=0)
        at_noon.call("pgqueue_message_complete", **token(at_noon.take(tasks=task is not None)))
    add_all(at_noon)
    assert [(row.task, row.succeeded) for row in figures(at_noon)] == [(None, 2)]
