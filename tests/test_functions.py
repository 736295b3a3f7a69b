"""The binding at the ends of what the SQL takes.  What the functions do is told by tests/sql."""

from __future__ import annotations

import pytest
from django.db import connection

from django_pgqueue import functions
from django_pgqueue.fields import LARGEST_MS, SMALLEST_MS
from django_pgqueue.models import Message


@pytest.mark.django_db
@pytest.mark.parametrize("ms", [SMALLEST_MS, -1, 0, LARGEST_MS])
def test_every_dequeue_at_can_be_enqueued_and_deferred_to(ms: int) -> None:
    functions.message_create(connection, "{}", dequeue_at=-1)
    created = functions.message_create(connection, "{}", dequeue_at=ms, queue="other")
    [received] = functions.message_dequeue(connection, queues=["default"], worker="w")
    assert functions.message_defer(connection, received, dequeue_at=ms) == "deferred"
    found = Message.objects.filter(pk__in=[created.id, received.id])
    assert [message.dequeue_at.epoch_ms for message in found] == [ms, ms]


@pytest.mark.django_db
def test_queues_with_waiting_messages_are_named_in_order() -> None:
    for queue in ("mail", "default", "mail"):
        functions.message_create(connection, "{}", queue=queue)
    assert functions.message_queues(connection) == ["default", "mail"]


@pytest.mark.django_db
@pytest.mark.parametrize("attempts", [(1, 2), (2, 1)])
def test_the_late_end_of_a_lost_attempt_does_not_hide_that_of_the_one_that_is_ours(attempts: tuple[int, int]) -> None:
    """A worker whose lock ran out may have taken the same message again: both ends may come in one batch."""
    functions.message_create(connection, "{}")
    for lock_ms in (0, 60_000):
        [received] = functions.message_dequeue(connection, worker="w", lock_ms=lock_ms)
    ends = [functions.Success(received.id, attempt) for attempt in attempts]
    assert functions.message_complete(connection, ends, worker="w") == {received.id}
    assert not Message.objects.exists()
