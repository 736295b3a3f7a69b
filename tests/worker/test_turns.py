"""Turns: workers that take many messages at once take them one after the other."""

from __future__ import annotations

import threading
import time
from typing import TYPE_CHECKING, Any
from unittest.mock import Mock

import psycopg
import pytest

from django_pgqueue.models import Attempt, Message
from django_pgqueue.worker.claim.floors import Floors
from django_pgqueue.worker.claim.turns import APART_SECONDS, MANY, MAX_WAIT_MS, Turns
from django_pgqueue.worker.health.reporter import Reporter
from django_pgqueue.worker.process import WorkerProcess
from django_pgqueue.worker.record.recorder import Recorder
from django_pgqueue.worker.settings import WorkerSettings
from tests.support.address import conninfo
from tests.support.site.tasks import nothing
from tests.support.waiting import SECONDS, wait_until

if TYPE_CHECKING:
    from collections.abc import Iterator

    from django_pgqueue.worker.record.record import Successes
    from tests.support.fixtures.consumers import Consume
    from tests.support.fixtures.workers import Session

LOCK_MS = 60_000
FLOOD = 5000
WAITING = """
select count(*) from pg_locks where locktype = 'advisory' and not granted
and database = (select oid from pg_database where datname = current_database())
"""


def turns(*, more: bool = True) -> Turns:
    turns = Turns(LOCK_MS)
    turns.learn(more=more)
    return turns


def test_a_worker_woken_for_a_message_does_not_wait() -> None:
    assert not Turns(LOCK_MS).due(1000, now=0.0)
    assert not turns(more=False).due(1000, now=0.0)


def test_a_worker_that_found_all_it_wanted_waits() -> None:
    assert turns().due(1000, now=0.0)


def test_a_claim_of_few_messages_does_not_wait() -> None:
    assert turns().due(MANY, now=0.0)
    assert not turns().due(MANY - 1, now=0.0)


def test_the_wait_is_a_small_part_of_the_time_that_messages_are_locked_for() -> None:
    assert Turns(LOCK_MS).wait_ms == MAX_WAIT_MS
    assert Turns(1200).wait_ms == 200


def test_waited_returns_the_seconds_of_the_wait() -> None:
    assert turns().waited(0, now=0.0) == 0
    assert turns().waited(250, now=0.0) == 0.25
    assert turns().waited(None, now=0.0) == MAX_WAIT_MS / 1000


def test_after_two_timeouts_a_worker_takes_no_turns_for_a_while() -> None:
    waiting = turns()
    waiting.waited(None, now=0.0)
    waiting.waited(30, now=1.0)
    waiting.waited(None, now=2.0)
    assert waiting.due(1000, now=2.0)
    waiting.waited(None, now=3.0)
    assert not waiting.due(1000, now=3.0)
    assert waiting.due(1000, now=3.0 + APART_SECONDS)
    waiting.waited(None, now=20.0)
    assert waiting.due(1000, now=20.0)


@pytest.fixture
def kept(session: Session) -> Iterator[psycopg.Connection[Any]]:
    """Somebody has the turn, and keeps it until the transaction ends."""
    with psycopg.connect(conninfo()) as other:
        other.execute("select pgqueue_message_await_turn()")
        yield other
        other.rollback()


@pytest.fixture
def flood(session: Session) -> None:
    session.rows(
        "insert into pgqueue_message (content, task, dequeue_at) "
        f"""select '{{"args": [], "kwargs": {{}}}}', '{nothing.module_path}', n from generate_series(1, {FLOOD}) as n"""
    )


@pytest.mark.slow
def test_a_worker_waits_in_a_flood_no_longer_than_necessary(
    session: Session, flood: None, consume: Consume, kept: psycopg.Connection[Any]
) -> None:
    consume()
    wait_until(lambda: session.value(WAITING) == 1, "it waits for its turn")
    wait_until(lambda: not Message.objects.exists(), "all have run all the same")
    assert Attempt.objects.filter(status="succeeded").count() == FLOOD


class FloorsThatAreTold(Floors):
    def __init__(self) -> None:
        super().__init__()
        self.crowds: list[bool] = []

    def learn(self, *args: Any, **known: Any) -> None:
        self.crowds.append(known["crowded"])
        super().learn(*args, **known)


@pytest.mark.usefixtures("transactional_db", "flood")
def test_ends_are_prepared_while_postgresql_works_on_a_claim(session: Session, monkeypatch: pytest.MonkeyPatch) -> None:
    before = len(session.strangers())
    written: list[int] = []
    write_prepared = Recorder._write_prepared

    def counted(recorder: Recorder, successes: Successes, *, now: float) -> None:
        assert {end.message.worker for end in successes.ends} == {consumer.id}
        written.append(len(successes.ends))
        write_prepared(recorder, successes, now=now)

    monkeypatch.setattr("django_pgqueue.worker.record.recorder.MANY", 1)
    monkeypatch.setattr(Recorder, "_write_prepared", counted)
    reporter = Mock(spec=Reporter)
    consumer = WorkerProcess(WorkerSettings(threads=2, burst=True), reporter=reporter)
    assert consumer.run() == 0
    wait_until(lambda: len(session.strangers()) == before, "its sessions are closed")
    assert written
    assert all(call.args[1] >= 0 for call in reporter.claimed.call_args_list)
    assert Attempt.objects.filter(status="succeeded").count() == FLOOD


@pytest.mark.usefixtures("transactional_db", "flood")
def test_a_wait_longer_than_the_claim_means_a_crowd_and_not_a_slow_claim(
    session: Session, kept: psycopg.Connection[Any]
) -> None:
    before = len(session.strangers())
    reporter = Mock(spec=Reporter)
    consumer = WorkerProcess(WorkerSettings(threads=2, burst=True), reporter=reporter)
    consumer.claimer.floors = floors = FloorsThatAreTold()
    thread = threading.Thread(target=consumer.run)
    thread.start()
    try:
        wait_until(lambda: session.value(WAITING) == 1, "it waits for its turn")
        so_far = len(floors.crowds)
        time.sleep(0.6 * MAX_WAIT_MS / 1000)
    finally:
        kept.rollback()
        thread.join(SECONDS)
    wait_until(lambda: len(session.strangers()) == before, "its sessions are closed")
    assert not any(floors.crowds[:so_far])
    assert floors.crowds[so_far]
    seconds = [call.args[1] for call in reporter.claimed.call_args_list]
    assert 0 < seconds[so_far] < 0.5 * MAX_WAIT_MS / 1000
    assert Attempt.objects.filter(status="succeeded").count() == FLOOD
