"""What others park is taken at once: here no poll and no second look ever comes."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

import pytest

from django_pgqueue.consumer import polling
from django_pgqueue.models import Attempt, Message
from django_pgqueue.worker.claim import unknown
from tests.support.site.tasks import nothing
from tests.support.waiting import wait_until
from tests.worker.test_rest import park
from tests.worker.test_versions import NEW, OLD, create, left, presence, refuse, set_version

if TYPE_CHECKING:
    from django_pgqueue.worker.process import WorkerProcess
    from tests.support.fixtures.consumers import Consume
    from tests.support.fixtures.workers import Session

pytestmark = pytest.mark.django_db(transaction=True)

NEVER = 100_000.0


@pytest.fixture(autouse=True)
def nothing_but_notifications(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(polling, "POLL_SECONDS", NEVER)
    monkeypatch.setattr(unknown, "LOOK_EVERY_SECONDS", NEVER)


def sleeps(consumer: WorkerProcess) -> bool:
    return consumer.polling.asleep and consumer.polling.next_look > time.monotonic() + NEVER / 2


def take(consumer: WorkerProcess, message_id: int) -> None:
    wait_until(lambda: Attempt.objects.filter(message_id=message_id).exists(), "it has run")
    wait_until(lambda: sleeps(consumer), "it sleeps")


def test_a_sleeper_takes_parked_messages_that_it_knows(consume: Consume, session: Session) -> None:
    consumer = consume()
    wait_until(lambda: sleeps(consumer), "it sleeps")
    for _ in range(3):
        take(consumer, park(session, nothing.module_path))


def test_a_sleeper_takes_parked_messages_of_its_own_version(consume: Consume, session: Session, settings: Any) -> None:
    set_version(settings, OLD)
    presence(session, NEW)
    consumer = consume()
    ids = [create(session, f"{n}") for n in range(5)]
    wait_until(lambda: left(*ids) == 5, "they are left to the newer worker")
    wait_until(lambda: sleeps(consumer), "it sleeps")
    for _ in range(3):
        take(consumer, refuse(session, "own"))
    assert left(*ids) == Message.objects.count() == 5
