"""Registration: what a worker says of its room, and when."""

from __future__ import annotations

import os
import re
import socket
from types import SimpleNamespace
from typing import TYPE_CHECKING, cast

import pytest

from django_pgqueue.consumer.row import SEEN_HOLDING_SECONDS
from django_pgqueue.models import Worker
from django_pgqueue.worker.claim.prefetch import SHORT_SECONDS
from django_pgqueue.worker.claim.registration import FULL_AFTER_SECONDS, ROOM_AFTER_SECONDS, Registration
from django_pgqueue.worker.process import WorkerProcess
from django_pgqueue.worker.run.marks import Marks
from django_pgqueue.worker.settings import WorkerSettings
from tests.support.site.tasks import nothing
from tests.support.waiting import wait_until
from tests.support.watching import ended

if TYPE_CHECKING:
    from django_pgqueue.worker.run.slots import Slots
    from tests.support.fixtures.consumers import Consume


@pytest.fixture
def presence() -> Registration:
    presence = Registration(WorkerSettings(), Marks(1))
    presence.has_room = True
    return presence


def test_a_worker_announces_room_that_lasts(presence: Registration) -> None:
    presence.has_room = False
    assert not presence.news_of_room(has_room=True, now=10.0)
    assert presence.news_of_room(has_room=True, now=10.01 + ROOM_AFTER_SECONDS)


def test_a_worker_full_of_long_jobs_announces_it_at_once(presence: Registration) -> None:
    assert presence.news_of_room(has_room=False, now=10.0)


def test_a_worker_full_of_short_jobs_announces_it_later(presence: Registration) -> None:
    assert not presence.news_of_room(has_room=False, now=10.0, at_once=False)
    assert presence.says_room_by_mistake
    assert presence.news_of_room(has_room=False, now=10.02 + FULL_AFTER_SECONDS, at_once=False)


def test_room_in_between_restarts_the_delay(presence: Registration) -> None:
    presence.news_of_room(has_room=False, now=10.0, at_once=False)
    assert not presence.news_of_room(has_room=True, now=10.01)
    assert not presence.says_room_by_mistake
    assert not presence.news_of_room(has_room=False, now=10.0 + FULL_AFTER_SECONDS, at_once=False)


def test_a_full_worker_that_announced_no_room_announces_nothing(presence: Registration) -> None:
    presence.has_room = False
    assert not presence.news_of_room(has_room=False, now=10.0)


def test_a_worker_that_holds_messages_is_seen_more_often(presence: Registration) -> None:
    presence.next_seen = 14.0
    presence.begins_to_hold(now=10.0)
    assert presence.next_seen == 10.0 + SEEN_HOLDING_SECONDS
    presence.begins_to_hold(now=11.0)
    assert presence.next_seen == 10.0 + SEEN_HOLDING_SECONDS, "it is not put off by each claim"


def test_a_worker_that_may_be_full_waits_for_its_reconnect() -> None:
    consumer = WorkerProcess(WorkerSettings())
    consumer.slots = cast("Slots", SimpleNamespace(waiting=lambda: 0))
    consumer.claimer.prefetch.last_progress = 10.0
    consumer.registration.has_room = True
    consumer.registration.news_of_room(has_room=False, now=10.0, at_once=False)
    assert consumer.claimer.attention_is_due_at() == 10.0 + SHORT_SECONDS
    consumer.session.reconnect_at = 15.0
    assert consumer.claimer.attention_is_due_at() == 15.0, "the database is left alone until then"
    consumer.wakeup.close()


@pytest.mark.parametrize(
    ("host", "name"),
    [
        ("web1.example.org", "web1.example.org"),
        ("", ""),
        (os.fsdecode(b"a\xffb"), "a?b"),
        ("ж", "?"),
        ("a\nINFO a line of its own", "a?INFO?a?line?of?its?own"),
    ],
)
def test_a_worker_runs_on_a_host_of_any_name(
    consume: Consume, monkeypatch: pytest.MonkeyPatch, host: str, name: str
) -> None:
    monkeypatch.setattr(socket, "gethostname", lambda: host)
    consumer = consume()
    ended(nothing.enqueue())
    wait_until(lambda: Worker.objects.filter(id=consumer.id, hostname=name).exists(), "it is seen")
    assert re.fullmatch(re.escape(name) + "-[0-9]+-[0-9a-f]{8}", consumer.id)
