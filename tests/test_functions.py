"""The binding at the ends of what the SQL takes.  What the functions do is told by tests/sql."""

from __future__ import annotations

import datetime as dt
from zoneinfo import ZoneInfo

import pytest
from django.db import connection

from django_pgqueue import functions
from django_pgqueue.functions import NewMessage
from django_pgqueue.models import Attempt, Message
from django_pgqueue.values.times import MAX_MS, MIN_MS, DequeueAt


@pytest.mark.django_db
@pytest.mark.parametrize("ms", [MIN_MS, -1, 0, MAX_MS])
def test_every_dequeue_at_can_be_enqueued_and_deferred_to(ms: int) -> None:
    functions.enqueue(connection, NewMessage(content="{}", when=DequeueAt(-1)))
    created = functions.enqueue(connection, NewMessage(content="{}", when=DequeueAt(ms), queue="other"))
    [received] = functions.message_dequeue(connection, queues=["default"], worker="w")
    assert functions.message_defer(connection, received, dequeue_at=ms) == "deferred"
    found = Message.objects.filter(pk__in=[created.id, received.id])
    assert [message.dequeue_at.epoch_ms for message in found] == [ms, ms]


@pytest.mark.django_db
def test_queues_with_waiting_messages_are_named_in_order() -> None:
    for queue in ("mail", "default", "mail"):
        functions.enqueue(connection, NewMessage(content="{}", queue=queue))
    assert functions.message_queues(connection) == ["default", "mail"]


@pytest.mark.django_db
@pytest.mark.parametrize("attempts", [(1, 2), (2, 1)])
def test_the_late_end_of_a_lost_attempt_does_not_hide_that_of_the_one_that_is_ours(attempts: tuple[int, int]) -> None:
    """A worker whose lock ran out may have taken the same message again: both ends may come in one batch."""
    functions.enqueue(connection, NewMessage(content="{}"))
    for lock_ms in (0, 60_000):
        [received] = functions.message_dequeue(connection, worker="w", lock_ms=lock_ms)
    ends = [functions.Success(received.id, attempt) for attempt in attempts]
    assert functions.message_complete(connection, ends, worker="w") == {received.id}
    assert not Message.objects.exists()


@pytest.mark.django_db
def test_times_are_written_to_the_microsecond() -> None:
    zones = [dt.UTC, dt.timezone(dt.timedelta(hours=5, minutes=45)), ZoneInfo("America/St_Johns")]
    moments = [
        dt.datetime(year, 11, 1, 5, 59, 59, microsecond, tzinfo=zones[microsecond % 3])
        for year in (1970, 2026, 2199)
        for microsecond in (0, 1, 2, 499_999, 500_000, 999_998, 999_999)
    ]
    for _ in moments:
        functions.enqueue(connection, NewMessage(content="{}"))
    held = functions.message_dequeue(connection, worker="w", limit=len(moments))
    ends = [
        functions.Success(message.id, message.attempt, None, moment, None if number % 5 else moment)
        for number, (message, moment) in enumerate(zip(held, moments, strict=True))
    ]
    functions.message_complete(connection, ends, worker="w")
    found = list(Attempt.objects.order_by("message_id"))
    assert [attempt.started_at for attempt in found] == moments
    assert [attempt.finished_at == moment for attempt, moment in zip(found, moments, strict=True)] == [
        number % 5 == 0 for number in range(len(moments))
    ]
