"""Who is idle sleeps and is woken; who is busy is left alone; and polling alone does it all the same, later."""

from __future__ import annotations

import datetime as dt
from typing import TYPE_CHECKING

import pytest
from django.db import transaction

from django_pgqueue.consumer import polling
from django_pgqueue.models import Attempt, Message, Worker
from tests.support.fixtures.consumers import another_transaction
from tests.support.site.tasks import nothing
from tests.support.waiting import wait_until
from tests.support.watching import asleep, at_rest, ended

if TYPE_CHECKING:
    from django_pgqueue.compat import AnyTaskResult
    from tests.support.fixtures.consumers import Consume
    from tests.support.fixtures.workers import Session, Start


def seconds_late(result: AnyTaskResult) -> float:
    """How long after it was due, or was enqueued, a job has begun."""
    attempt = Attempt.objects.get(message_id=ended(result).id)
    assert attempt.started_at is not None
    return float(attempt.started_at.timestamp() - attempt.dequeue_at.timestamp())


@pytest.fixture
def no_poll(monkeypatch: pytest.MonkeyPatch) -> None:
    """A worker of this process looks again only when it is woken, or when it knows that a message is due."""
    monkeypatch.setattr(polling, "_poll_seconds", lambda: 3600.0)


def all_asleep(workers: int = 1) -> None:
    wait_until(lambda: len(asleep()) == workers, f"{workers} sleep")


def test_a_sleeper_is_woken(no_poll: None, consume: Consume) -> None:
    consume()
    for _ in range(15):
        all_asleep()
        ended(nothing.enqueue())


def test_a_sleeper_finds_the_message_of_a_transaction_that_was_open_when_it_fell_asleep(
    no_poll: None, consume: Consume
) -> None:
    """The enqueue found nobody to notify."""
    with transaction.atomic():
        result = nothing.enqueue()
        worker = consume()
        all_asleep()
        wait_until(lambda: worker.polling.asks_first(0.0), "it has looked, and asks for the transaction")
    ended(result)


def test_a_worker_that_was_woken_in_vain_finds_the_message_of_a_later_commit(no_poll: None, consume: Consume) -> None:
    """A worker that has no room any more wakes the next one, for messages that may not be committed yet."""
    worker = consume()
    all_asleep()
    wait_until(lambda: worker.polling.next_look > 1.0, "it has looked, and waits for nothing")
    with transaction.atomic():
        message = Message.objects.create(task=nothing.module_path, content={"args": [], "kwargs": {}}, dequeue_at=0)
        with another_transaction() as other:
            other.execute("select pg_notify('pgqueue_' || %s, E'default\\n')", (worker.id,))
            other.commit()
        wait_until(lambda: worker.polling.asks_first(0.0), "it has looked in vain, and asks for the transaction")
    wait_until(Attempt.objects.filter(message_id=message.pk).exists, "the message has run")


def test_a_sleeper_begins_scheduled_jobs_when_they_are_due(no_poll: None, consume: Consume) -> None:
    results = [nothing.using(run_after=dt.timedelta(seconds=seconds)).enqueue() for seconds in (1.2, 2.3)]
    consume()
    assert min(seconds_late(result) for result in results) >= 0


def test_a_sleeper_without_a_notification_polls(start: Start, session: Session) -> None:
    start("-v", "0", ready=False)
    for _ in range(2):
        all_asleep()
        with transaction.atomic():
            Worker.objects.all().delete()  # as if its notification had been lost
            result = nothing.enqueue()
        ended(result)


def test_without_listen_a_worker_polls(start: Start) -> None:
    worker = start("-v", "0", ready=False, options={"LISTEN": False})
    wait_until(Worker.objects.exists, "the worker is known")
    for _ in range(2):
        at_rest(worker.children[0])
        assert asleep() == []
        ended(nothing.enqueue())
    ended(nothing.using(run_after=dt.timedelta(seconds=0.5)).enqueue())
