"""The backlog, for autoscalers."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from tests.sql.message.test_parking import parked
from tests.sql.words import set_channel
from tests.support.sessions import NOON, token, tokens

if TYPE_CHECKING:
    from tests.support.sessions import Session


@pytest.fixture(autouse=True)
def noon(session: Session) -> None:
    session.set_clock(NOON)


def backlog(session: Session, *queues: str) -> tuple[Any, ...]:
    [row] = session.rows("select * from pgqueue_backlog(%s)", [list(queues) or None])
    return tuple(row)


def both(session: Session, *queues: str) -> tuple[Any, ...]:
    """The same, whether the queues are named or not."""
    everywhere = backlog(session)
    assert backlog(session, *(queues or ("default", "mail", "default"))) == everywhere
    return everywhere


def flood(session: Session, number: int, **expressions: Any) -> None:
    """``number`` messages; the expressions of SQL may contain their number, ``n``."""
    columns = {"content": "'{}'", "task": "'t'", "dequeue_at": NOON, **expressions}
    session.rows(
        f"insert into pgqueue_message ({', '.join(columns)}) "
        f"select {', '.join(map(str, columns.values()))} from generate_series(1, {number}) as n"
    )


def test_an_empty_queue_has_no_backlog(session: Session) -> None:
    assert both(session) == (0, None, 0)


def test_an_end_that_came_while_the_clock_was_ahead_is_to_be_looked_at(session: Session) -> None:
    """Where no worker runs, this one starts one."""
    other = session.create(task="t", dequeue_at=NOON + 3_600_000)
    session.value("pgqueue_message_create_after", after_ids=[other], content="tea", task="t")
    session.call("pgqueue_message_settle")
    session.set_clock(NOON + 86_400_000)
    session.ids("pgqueue_message_cancel", ids=[other])
    session.set_clock(NOON)
    assert both(session) == (1, 0, 0)


def test_it_counts_ready_messages_and_returns_the_wait_of_the_first(session: Session) -> None:
    for priority, queue, age in ((5, "default", 10), (0, "mail", 3000), (0, "mail", 20), (-5, "default", 30)):
        session.set_clock(NOON - age)
        session.create(task="t", priority=priority, queue=queue)
    session.set_clock(NOON)
    assert both(session) == (4, 3000, 0)
    assert backlog(session, "mail") == (2, 3000, 0)
    assert backlog(session, "nowhere") == (0, None, 0)


def test_a_scheduled_message_counts_when_it_is_due_before_any_dequeue(session: Session) -> None:
    session.create(task="t", dequeue_at=NOON + 500)
    assert both(session) == (0, None, 0)
    session.set_clock(NOON + 700)
    assert both(session) == (1, 200, 0)


def test_a_historical_time_is_no_long_wait(session: Session) -> None:
    session.create(task="t", dequeue_at=-5)
    session.set_clock(NOON + 70)
    assert both(session) == (1, 70, 0)


def test_raw_messages_and_paused_queues_are_not_counted(session: Session) -> None:
    session.create()
    session.create(task="t", queue="mail")
    session.create(task="t", queue="mail", channel="acme")
    session.call("pgqueue_queue_pause", queue="mail")
    assert both(session) == (0, None, 0)


def test_running_messages_are_counted_apart_and_lost_ones_are_ready(session: Session) -> None:
    for lock_ms in (1000, 2000):
        session.create(task="t")
        session.take(tasks=True, lock_ms=lock_ms)
    assert both(session) == (0, None, 2)
    session.set_clock(NOON + 1500)
    assert both(session) == (1, 500, 1)


class TestAChannel:
    def test_counts_before_any_worker_has_seen_it(self, session: Session) -> None:
        for n in range(3):
            session.create(n, task="t", channel="acme", priority=n)
        assert both(session) == (3, 0, 0)

    def test_counts_no_more_than_may_begin(self, session: Session) -> None:
        session.call("pgqueue_channel_set", name="acme", max_concurrency=2)
        session.create_batch(5, task="t", channel="acme")
        assert both(session)[0] == 2
        [one, two] = session.dequeue(2, tasks=True)
        assert both(session) == (0, None, 2)
        session.call("pgqueue_message_complete", id=one.id, attempt=1, worker=one.worker)
        assert both(session)[::2] == (1, 1), "though no dequeue has seen the end"
        session.call("pgqueue_message_complete", id=two.id, attempt=1, worker=two.worker)
        assert both(session)[::2] == (2, 0)

    def test_that_is_full_hides_no_other(self, session: Session) -> None:
        session.call("pgqueue_channel_set", name="acme", max_concurrency=0)
        session.create_batch(3, task="t", channel="acme")
        session.create(task="t", channel="zebra")
        assert both(session)[0] == 1


def test_a_message_with_dependencies_counts_when_a_check_is_due(session: Session) -> None:
    first = session.create(task="t", dequeue_at=NOON + 900_000)
    session.value("pgqueue_message_create_after", after_ids=[first], content=1, task="t")
    assert both(session)[0] == 1
    session.call("pgqueue_message_settle")
    assert both(session)[0] == 0


def test_a_channel_that_releases_one_at_a_time_lets_one_begin(session: Session) -> None:
    set_channel(session, release_interval_ms=60_000)
    session.create_batch(3, task="t", channel="acme")
    assert both(session) == (1, 0, 0)
    [taken] = session.dequeue(3, tasks=True)
    assert both(session) == (0, None, 1)
    session.set_clock(NOON + 60_000)
    assert session.value("pgqueue_message_complete", **token(taken)) is True
    assert both(session) == (1, 60_000, 0)


class TestNothingHides:
    """Ready messages count beside any number of others: a walk that meets its limit never ends in "nothing to do"."""

    @pytest.mark.parametrize("moved", [True, False], ids=["a worker has seen the lanes", "no worker has"])
    def test_the_lanes_of_another_queue(self, session: Session, moved: bool) -> None:
        flood(session, 10_001, queue="'bulk'", channel="'a' || n", dequeue_at=NOON + 86_400_000)
        if moved:
            for _ in range(11):
                session.call("pgqueue_lane_arm")
            assert both(session, "bulk") == (0, None, 0), "nothing is due"
        session.create(task="t", channel="zeta", queue="mail")
        assert backlog(session, "mail") == backlog(session) == (1, 0, 0)
        session.call("pgqueue_queue_pause", queue="bulk")
        assert backlog(session, "mail") == backlog(session) == (1, 0, 0)

    def test_the_ready_lanes_of_a_paused_queue(self, session: Session) -> None:
        flood(session, 1100, queue="'bulk'", channel="'a' || n")
        for _ in range(3):
            session.call("pgqueue_lane_arm")
        session.call("pgqueue_queue_pause", queue="bulk")
        assert both(session, "bulk", "mail") == (0, None, 0)
        session.set_clock(NOON - 40)
        session.create(task="t", channel="zeta", queue="mail")
        session.set_clock(NOON)
        assert both(session, "bulk", "mail") == (1, 40, 0)

    def test_a_halted_lane_of_another_queue(self, session: Session) -> None:
        """It waits for an end that no dequeue has seen."""
        session.call("pgqueue_channel_set", name="acme", max_concurrency=1)
        running = session.create(task="t", channel="acme", queue="mail")
        session.create(task="t", channel="acme")
        [held] = session.dequeue(1, tasks=True, queues=["mail"])
        assert (held.id, session.dequeue(1, tasks=True)) == (running, [])
        assert both(session) == (0, None, 1)
        session.value("pgqueue_message_complete", **token(held))
        assert both(session) == (1, 0, 0)

    def test_the_end_of_an_attempt_behind_many_new_messages(self, session: Session) -> None:
        session.call("pgqueue_channel_set", name="acme", max_concurrency=1)
        session.create(task="t", channel="acme")
        held = session.take(tasks=True)
        flood(session, 1001, channel="'acme'")
        session.value("pgqueue_message_complete", **token(held))
        assert both(session)[0] == 1

    def test_due_messages_of_a_paused_queue(self, session: Session) -> None:
        flood(session, 10_001, queue="'bulk'", dequeue_at=NOON - 60, in_line=False)
        session.call("pgqueue_queue_pause", queue="bulk")
        assert both(session, "bulk") == (0, None, 0)
        flood(session, 1, dequeue_at=NOON - 40, in_line=False)
        assert both(session, "bulk", "default") == (1, 40, 0)

    def test_the_lines_of_paused_queues(self, session: Session) -> None:
        for queue in "abcde":
            flood(session, 201, queue=f"'{queue}'", priority="n - 101")
            session.call("pgqueue_queue_pause", queue=queue)
        assert both(session, *"abcde") == (0, None, 0)
        session.create(task="t", queue="mail", priority=-100)
        assert both(session, "mail") == (1, 0, 0)

    def test_more_queues_than_are_read(self, session: Session) -> None:
        flood(session, 1001, queue="'q' || n", in_line=False, dequeue_at=NOON + 500)
        assert both(session, "z") == (0, None, 0), "nothing is due"
        flood(session, 1, queue="'z'", in_line=False)
        assert backlog(session) == backlog(session, "z") == (1, 0, 0)

    def test_many_locked_raw_messages(self, session: Session) -> None:
        flood(session, 10_000, task="null")
        session.dequeue(10_000, lock_ms=1000)
        session.create(task="t")
        session.take(tasks=True, lock_ms=2000)
        assert both(session) == (0, None, 1)
        session.set_clock(NOON + 2000)
        assert both(session) == (1, 0, 0)

    def test_parked_messages_of_many_tasks(self, session: Session) -> None:
        flood(session, 1000, task="'t' || n", queue="'bulk'", in_line=False, dequeue_at=2**63 - 1)
        session.rows("update pgqueue_message set parked_at = %s", [NOON])
        parked(session, task="t", queue="mail")
        assert backlog(session, "mail")[0] == 1


def test_a_quarantined_message_counts(session: Session) -> None:
    session.set_clock(NOON - 60)
    session.rows(
        "update pgqueue_message set alone_at = %s, dequeue_at = 9223372036854775807, in_line = false where id = %s",
        [NOON - 40, session.create(task="t")],
    )
    session.set_clock(NOON)
    assert both(session) == (1, 40, 0)


@pytest.mark.parametrize("dequeue_at", [0, -(2**63)])
def test_a_historical_time_is_no_long_wait_in_quarantine(session: Session, dequeue_at: int) -> None:
    died = session.create(task="t", dequeue_at=dequeue_at)
    taken = session.take(tasks=True)
    session.value("pgqueue_worker_died", worker=taken.worker, ids=[died], attempts=[1], running=[True])
    assert session.message(died).alone_at == dequeue_at
    session.set_clock(NOON + 25)
    assert both(session) == (1, 25, 0)


@pytest.mark.parametrize("dequeue_at", [0, -(2**63)])
def test_a_historical_time_is_no_long_wait_for_others(session: Session, dequeue_at: int) -> None:
    other = session.create(task="t", dequeue_at=NOON + 3_600_000)
    session.value("pgqueue_message_create_after", after_ids=[other], content="tea", task="t", dequeue_at=dequeue_at)
    session.set_clock(NOON + 25)
    assert both(session) == (1, 25, 0)


def test_parked_messages_count_once_for_each_task(session: Session) -> None:
    """One worker finds out whether it knows them, and a thousand are no reason for more."""
    for task, queue in (("s", "default"), ("t", "default"), ("t", "default"), ("t", "mail")):
        parked(session, task=task, queue=queue)
    session.set_clock(NOON + 300)
    assert both(session) == (3, 300, 0)
    assert backlog(session, "mail") == (1, 300, 0)
    session.call("pgqueue_queue_pause", queue="mail")
    assert both(session)[0] == 2


def test_a_message_for_a_later_version_counts_no_waiting_time(session: Session) -> None:
    session.create(task="t", version="2")
    [taken] = session.dequeue(1, worker="w1", tasks=True)
    session.ids("pgqueue_message_park", **tokens([taken]), reasons=["later"], unknown=False)
    session.set_clock(NOON + 300)
    assert both(session) == (1, 0, 0)


def test_counts_end_at_ten_thousand(session: Session) -> None:
    for queue in ("default", "mail"):
        session.rows(
            "insert into pgqueue_message (content, task, queue, dequeue_at) "
            "select '1', 't', %s, 0 from generate_series(1, 9000)",
            [queue],
        )
    assert both(session)[0] == 10_000
    assert backlog(session, "mail")[0] == 9000
