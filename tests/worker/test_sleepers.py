"""Of many workers that sleep only those are woken that are needed."""

from __future__ import annotations

import time
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import psycopg
import pytest
from psycopg import sql

from django_pgqueue import control, functions
from django_pgqueue.consumer import polling
from django_pgqueue.models import Attempt, Message, Worker
from tests.support.address import conninfo
from tests.support.site import jobs
from tests.support.site.tasks import hold, nothing
from tests.support.waiting import wait_until
from tests.support.watching import asleep, ended, started

if TYPE_CHECKING:
    from collections.abc import Iterator

    from django_pgqueue.worker.process import WorkerProcess
    from tests.support.diary import Diary
    from tests.support.fixtures.consumers import Consume

pytestmark = pytest.mark.django_db(transaction=True)


@pytest.fixture(autouse=True)
def long_nights(monkeypatch: pytest.MonkeyPatch) -> None:
    """Who sleeps is not woken by his own clock, and who is awake stays awake."""
    monkeypatch.setattr(polling, "POLL_SECONDS", 60.0)


@pytest.fixture
def stays_awake(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(polling, "FEW_A_SECOND", 0)
    monkeypatch.setattr(polling.Polling, "_is_quiet", lambda self: not self.asleep and self._found_at is None)
    monkeypatch.setattr(polling, "AWAKE_SECONDS", 60.0)


@pytest.fixture
def ears(transactional_db: None) -> Iterator[psycopg.Connection]:
    with psycopg.connect(conninfo(), autocommit=True) as connection:
        yield connection


def notified(ears: psycopg.Connection) -> list[str]:
    return [notification.channel for notification in ears.notifies(timeout=0.2)]


def polled(consumer: WorkerProcess) -> bool:
    """Lets a sleeper look at once.  Call it again and again: a look puts the next one off when it ends."""
    consumer.polling.sleeps_on(now=0.0)
    consumer.wakeup.wake()
    return True


def listen_as_all(ears: psycopg.Connection) -> None:
    for worker in asleep():
        ears.execute(sql.SQL("listen {}").format(sql.Identifier(f"pgqueue_{worker}")))


def test_a_single_awake_worker_with_room_runs_the_jobs(
    consume: Consume, diary: Diary, ears: psycopg.Connection, stays_awake: None
) -> None:
    for _ in range(3):
        consume()
    wait_until(lambda: len(asleep()) == 3, "all sleep")
    listen_as_all(ears)
    ended(jobs.which_session.enqueue())
    wait_until(lambda: Worker.objects.filter(has_room=True).count() == 1, "one is awake and says so")
    heard = notified(ears)
    for _ in range(20):
        ended(jobs.which_session.enqueue())
    assert len(heard) == 1
    assert notified(ears) == []
    assert len(asleep()) == 2


def test_a_sleeper_registers_in_the_transaction_of_its_look(consume: Consume, monkeypatch: pytest.MonkeyPatch) -> None:
    statuses: list[str] = []
    seen = functions.worker_seen

    def noted(*args: Any, **kwargs: Any) -> Any:
        statuses.append(consumer.session.connection.info.transaction_status.name)
        return seen(*args, **kwargs)

    consumer = consume(idle_poll_seconds=0.1)
    wait_until(lambda: len(asleep()) == 1, "it sleeps")
    monkeypatch.setattr(functions, "worker_seen", noted)
    monkeypatch.setattr(polling, "POLL_SECONDS", 0.1)
    before = Worker.objects.get().seen_at
    consumer.registration.next_seen = time.monotonic() + 1
    wait_until(lambda: polled(consumer) and Worker.objects.get().seen_at > before, "it has been seen")
    assert set(statuses) == {"INTRANS"}


def test_a_message_found_by_a_sleeper_begins_after_the_commit_of_its_claim(
    consume: Consume, monkeypatch: pytest.MonkeyPatch, ears: psycopg.Connection
) -> None:
    statuses: list[str] = []
    consumer = consume()
    wait_until(lambda: len(asleep()) == 1, "it sleeps")
    submit = consumer.slots.submit

    def noted(messages: Any) -> None:
        statuses.append(consumer.session.connection.info.transaction_status.name)
        submit(messages)

    monkeypatch.setattr(consumer.slots, "submit", noted)
    ears.execute(  # and so nobody is notified
        "insert into pgqueue_message (content, task, dequeue_at) values (%s, %s, 0)",
        ('{"args": [], "kwargs": {}}', jobs.which_session.module_path),
    )
    wait_until(lambda: polled(consumer) and statuses, "it has begun")
    assert statuses == ["IDLE"]


def test_a_claim_whose_commit_got_no_answer_is_given_back(
    consume: Consume, monkeypatch: pytest.MonkeyPatch, ears: psycopg.Connection
) -> None:
    """Nothing of it has begun, so no other worker has to wait for its lock, and no attempt counts."""
    consumer = consume(threads=1)
    wait_until(asleep, "the worker sleeps")
    committed = consumer.session.transaction
    without_an_answer: list[str] = []

    @contextmanager
    def transaction() -> Iterator[None]:
        with committed():
            yield
        if not without_an_answer and ears.execute("select 1 from pgqueue_message where worker is not null").fetchone():
            without_an_answer.append(consumer.id)
            consumer.session.connection.close()
            message = "the answer to the commit is lost"
            raise psycopg.OperationalError(message)

    def asked_for_work() -> bool:
        """A look without a poll, after a notification, has no such transaction."""
        if not Message.objects.exists():
            ears.execute(  # and so nobody is notified
                "insert into pgqueue_message (content, task, dequeue_at) values (%s, %s, 0)",
                ('{"args": [], "kwargs": {}}', nothing.module_path),
            )
        return polled(consumer)

    monkeypatch.setattr(consumer.session, "transaction", transaction)
    wait_until(lambda: asked_for_work() and without_an_answer, "it has claimed")
    wait_until(
        lambda: polled(consumer) and not Message.objects.exists(), "the job has run", consumer.settings.lock_seconds / 2
    )
    assert set(Attempt.objects.values_list("attempt", "status")) == {(1, "succeeded")}


def test_of_several_workers_with_room_one_stays_awake(consume: Consume, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(polling.Polling, "_is_quiet", lambda _: False)
    monkeypatch.setattr(polling, "AWAKE_SECONDS", 60.0)
    for _ in range(3):
        consume()
    wait_until(lambda: Worker.objects.filter(has_room=True).exists(), "one has room")

    def one_is_enough() -> bool:
        ended(jobs.which_session.enqueue())
        return len(asleep()) == 2 and Worker.objects.filter(has_room=True).count() == 1

    wait_until(one_is_enough, "the others sleep, although there is always something to do")


def test_a_full_worker_wakes_the_next_and_announces_it(consume: Consume, diary: Diary, stays_awake: None) -> None:
    """Three jobs for two slots of the first: the third begins at the second."""
    consumers = [consume(threads=2) for _ in range(2)]
    wait_until(lambda: len(asleep()) == 2, "both sleep")
    # A sleeper whose own look finds a message, while another worker has room, runs it without waking up.
    soon = time.monotonic() + polling.POLL_SECONDS / 4
    wait_until(lambda: all(consumer.polling.next_look > soon for consumer in consumers), "neither looks soon")
    results = {}
    for word in ("a", "b", "c"):
        results[word] = hold.enqueue(word)
        started(diary, word)
    wait_until(lambda: Worker.objects.filter(asleep_until=None).count() == 2, "two have been woken")
    for word, result in results.items():
        diary.allow(f"{word}-1")
        ended(result)


def test_a_worker_that_stops_does_not_keep_others_asleep(
    consume: Consume, diary: Diary, ears: psycopg.Connection, stays_awake: None
) -> None:
    consumers = [consume(threads=2, grace_seconds=600) for _ in range(2)]
    wait_until(lambda: len(asleep()) == 2, "both sleep")
    results = {"a": hold.enqueue("a")}
    started(diary, "a")
    wait_until(lambda: Worker.objects.filter(has_room=True).count() == 1, "it says that it has room")
    awake = Worker.objects.get(has_room=True)
    listen_as_all(ears)
    control.pause("slow")
    hold.using(queue_name="slow").enqueue("nobody is woken for this")
    before = notified(ears)
    next(consumer for consumer in consumers if consumer.id == awake.id).stop()
    wait_until(lambda: not Worker.objects.filter(has_room=True).exists(), "it says that it has no room")
    assert (before, len(notified(ears))) == ([], 1), "who stops wakes the next, as nobody else has"
    results["b"] = hold.enqueue("b")
    started(diary, "b")
    for word, result in results.items():
        diary.allow(f"{word}-1")
        ended(result)
