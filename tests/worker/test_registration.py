"""Registration: what a worker says of its room, and when."""

from __future__ import annotations

from types import SimpleNamespace
from typing import TYPE_CHECKING, cast

import pytest

from django_pgqueue.worker.claim.prefetch import SHORT_SECONDS
from django_pgqueue.worker.claim.registration import FULL_AFTER_SECONDS, ROOM_AFTER_SECONDS, Registration
from django_pgqueue.worker.process import WorkerProcess
from django_pgqueue.worker.run.marks import Marks
from django_pgqueue.worker.settings import WorkerSettings

if TYPE_CHECKING:
    from django_pgqueue.worker.run.threads import Slots


@pytest.fixture
def presence() -> Registration:
    presence = Registration(WorkerSettings(), Marks(1))
    presence.has_room = True
    return presence


def test_who_has_had_room_for_a_while_says_so(presence: Registration) -> None:
    presence.has_room = False
    assert not presence.news_of_room(has_room=True, now=10.0)
    assert presence.news_of_room(has_room=True, now=10.01 + ROOM_AFTER_SECONDS)


def test_who_is_full_for_long_says_so_at_once(presence: Registration) -> None:
    assert presence.news_of_room(has_room=False, now=10.0)


def test_who_is_full_of_short_jobs_waits_a_moment(presence: Registration) -> None:
    assert not presence.news_of_room(has_room=False, now=10.0, at_once=False)
    assert presence.says_room_by_mistake
    assert presence.news_of_room(has_room=False, now=10.02 + FULL_AFTER_SECONDS, at_once=False)


def test_room_in_between_begins_anew(presence: Registration) -> None:
    presence.news_of_room(has_room=False, now=10.0, at_once=False)
    assert not presence.news_of_room(has_room=True, now=10.01)
    assert not presence.says_room_by_mistake
    assert not presence.news_of_room(has_room=False, now=10.0 + FULL_AFTER_SECONDS, at_once=False)


def test_who_has_said_nothing_has_nothing_to_take_back(presence: Registration) -> None:
    presence.has_room = False
    assert not presence.news_of_room(has_room=False, now=10.0)


def test_who_may_be_full_is_not_hurried_after_an_error() -> None:
    consumer = WorkerProcess(WorkerSettings())
    consumer.slots = cast("Slots", SimpleNamespace(waiting=lambda: 0))
    consumer.claimer.prefetch.last_progress = 10.0
    consumer.registration.has_room = True
    consumer.registration.news_of_room(has_room=False, now=10.0, at_once=False)
    assert consumer.claimer.attention_is_due_at() == 10.0 + SHORT_SECONDS
    consumer.session.reconnect_at = 15.0
    assert consumer.claimer.attention_is_due_at() == 15.0, "the database is left alone until then"
    consumer.wakeup.close()
