"""Floors: how claims stay fast, and find everything, while somebody's long transaction holds a snapshot."""

from __future__ import annotations

import datetime as dt
import threading
from typing import TYPE_CHECKING, Any

import psycopg
import pytest

from django_pgqueue.functions import Floor, Received
from django_pgqueue.models import Message
from django_pgqueue.worker.claim.floors import FULL_SHARE, Floors
from django_pgqueue.worker.process import WorkerProcess
from django_pgqueue.worker.settings import WorkerSettings
from tests.support.address import conninfo
from tests.support.site.tasks import nothing, write
from tests.support.waiting import SECONDS, wait_until

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.support.diary import Diary
    from tests.support.fixtures.workers import Session

SLOW, FAST = 0.05, 0.001
NOW = dt.datetime(2026, 1, 1, tzinfo=dt.UTC)


def received(id_: int, *, queue: str = "a", priority: int = 0, dequeue_at: int = 0) -> Received:
    values: dict[str, Any] = dict.fromkeys(("max_attempts", "channel", "task", "headers", "state"))
    return Received(
        id=id_, attempt=1, queue=queue, priority=priority, dequeue_at=dequeue_at, content="{}", worker="w",
        created_at=NOW, locked_at=NOW, **values,
    )  # fmt: skip


def test_fast_claims_search_the_whole_queue() -> None:
    floors = Floors()
    floors.learn([received(1)], seconds=FAST, full=True, now=0.0)
    assert floors.choose(0.0) is None


def test_a_claim_of_many_messages_may_take_longer() -> None:
    floors = Floors()
    floors.learn([received(n) for n in range(500)], seconds=0.012, full=True, now=0.0)
    assert not floors.slow


def test_after_a_slow_claim_the_next_begins_where_it_stopped() -> None:
    floors = Floors()
    claimed = [
        received(1, dequeue_at=10),
        received(2, dequeue_at=10),
        received(9, dequeue_at=5),
        received(3, priority=7, dequeue_at=1),
        received(4, queue="b", dequeue_at=3),
    ]
    floors.learn(claimed, seconds=SLOW, full=True, now=0.0)
    assert floors.choose(0.01) == [Floor("a", 7, 1, 3), Floor("a", 0, 10, 2), Floor("b", 0, 3, 4)]
    floors.learn([received(5, dequeue_at=11), received(1, priority=7)], seconds=FAST, full=False, now=0.02)
    assert floors.choose(0.03) == [Floor("a", 7, 1, 3), Floor("a", 0, 11, 5), Floor("b", 0, 3, 4)]


def test_slow_full_claims_take_their_share_of_the_time_and_no_more() -> None:
    floors, now, full_seconds = Floors(), 0.0, 0.0
    while now < 20:
        full = floors.choose(now) is None
        seconds = SLOW if full else FAST
        full_seconds += seconds if full else 0
        now += seconds
        floors.learn([received(1)], seconds=seconds, full=full, now=now)
    assert 0.9 * FULL_SHARE < full_seconds / now < 1.1 * FULL_SHARE


def test_when_a_full_claim_is_fast_again_the_floors_are_gone() -> None:
    floors = Floors()
    floors.learn([received(1)], seconds=SLOW, full=True, now=0.0)
    floors.learn([received(2)], seconds=FAST, full=True, now=1.0)
    assert floors.choose(1.0) is None
    floors.learn([], seconds=SLOW, full=True, now=2.0)
    assert floors.choose(2.0) == [Floor("a", 0, 0, 2)]


def test_without_a_claimed_message_there_is_no_floor() -> None:
    floors = Floors()
    floors.learn([], seconds=SLOW, full=True, now=0.0)
    assert floors.choose(0.0) is None


def test_in_a_crowd_one_of_four_claims_is_a_full_one() -> None:
    floors, full = Floors(), []
    for number in range(9):
        full.append(floors.choose(0.0) is None)
        floors.learn([received(number)], seconds=FAST, full=full[-1], now=0.0, crowded=True)
    assert full == [True, False, False, False, True, False, False, False, True]


def test_when_the_crowd_is_gone_the_next_claim_is_a_full_one() -> None:
    floors = Floors()
    floors.learn([received(1)], seconds=FAST, full=True, now=0.0, crowded=True)
    assert floors.choose(0.0) == [Floor("a", 0, 0, 1)]
    floors.learn([received(2)], seconds=FAST, full=False, now=0.0)
    assert floors.choose(0.0) is None


def test_a_crowd_does_not_put_off_full_claims_that_are_slow() -> None:
    floors = Floors()
    floors.learn([received(1)], seconds=SLOW, full=True, now=0.0, crowded=True)
    for number in range(20):
        assert floors.choose(0.01) is not None
        floors.learn([received(number)], seconds=FAST, full=False, now=0.01, crowded=True)
    assert floors.choose(1.0) is None


@pytest.fixture
def snapshot(session: Session) -> Iterator[None]:
    """Somebody's transaction that began a while ago: the index entries of all that has ended since are still there."""
    with psycopg.connect(conninfo()) as other:
        other.execute("set transaction isolation level repeatable read")
        other.execute("select count(*) from pgqueue_message")
        session.rows(
            "insert into pgqueue_message (content, task, dequeue_at) "
            "select '{}', 'x', n from generate_series(1, 200000) as n"
        )
        session.rows("delete from pgqueue_message")
        yield
        other.rollback()


class CountingFloors(Floors):
    used = 0

    def choose(self, now: float) -> list[Floor] | None:
        floors = super().choose(now)
        self.used += floors is not None
        return floors


@pytest.fixture
def consumer(session: Session, diary: Diary, snapshot: None) -> Iterator[WorkerProcess]:
    """A worker in a thread of this process, so that one can look into it."""
    before = len(session.strangers())
    consumer = WorkerProcess(WorkerSettings(threads=2))
    consumer.claimer.floors = CountingFloors()
    thread = threading.Thread(target=consumer.run)
    thread.start()
    yield consumer
    consumer.stop()
    thread.join(SECONDS)
    wait_until(lambda: len(session.strangers()) == before, "its sessions are closed")


def test_late_commits_and_other_priorities_and_queues_are_found_while_floors_are_in_use(
    consumer: WorkerProcess, diary: Diary, session: Session
) -> None:
    lates: dict[str, dict[str, Any]] = {
        "a late commit": {"dequeue_at": 1},
        "another priority": {"priority": -50},
        "a higher priority": {"priority": 50},
        "another queue": {"queue": "other"},
    }
    for name, late in lates.items():
        keep_busy(consumer)
        insert(session, name, **late)

        def found(name: str = name) -> bool:
            keep_busy(consumer)
            return name in diary.words()

        wait_until(found, f"{name} is found")
    assert isinstance(consumer.claimer.floors, CountingFloors)
    assert consumer.claimer.floors.used > 10


def keep_busy(consumer: WorkerProcess) -> None:
    """A stream of ordinary jobs, until claims from the head are slow and floors are in use."""
    nothing.enqueue()
    wait_until(lambda: not Message.objects.filter(task=nothing.module_path).exists(), "the job is done")
    while not consumer.claimer.floors.slow:
        nothing.enqueue()


def insert(session: Session, word: str, **columns: Any) -> None:
    row = {
        "task": write.module_path,
        "content": f'{{"args": ["{word}"], "kwargs": {{}}}}',
        "dequeue_at": session.value("select pgqueue_now()"),
        **columns,
    }
    names, places = ", ".join(row), ", ".join("%s" for _ in row)
    session.rows(f"insert into pgqueue_message ({names}) values ({places})", *row.values())
