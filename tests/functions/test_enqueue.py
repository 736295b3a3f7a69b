"""The binding at the ends of what the SQL takes.  What the functions do is told by tests/sql."""

from __future__ import annotations

import datetime as dt
from zoneinfo import ZoneInfo

import pytest
from django.db import connection
from django.test.utils import CaptureQueriesContext

from django_pgqueue import functions
from django_pgqueue.functions import After, NewMessage, UniqueKey
from django_pgqueue.models import Attempt, Message
from django_pgqueue.values.times import MAX_MS, MIN_MS, Delay, DequeueAt, microseconds


@pytest.mark.django_db
@pytest.mark.parametrize("ms", [MIN_MS, -1, 0, MAX_MS])
def test_every_dequeue_at_can_be_enqueued_and_deferred_to(ms: int) -> None:
    functions.enqueue(connection, NewMessage(content="{}", when=DequeueAt(-1)))
    created = functions.enqueue(connection, NewMessage(content="{}", when=DequeueAt(ms), queue="other"))
    [received] = functions.message_dequeue(connection, queues=["default"], worker="w")
    assert functions.message_defer(connection, received, dequeue_at=ms) == "deferred"
    found = Message.objects.filter(pk__in=[created.id, received.id])
    assert [message.dequeue_at.epoch_ms for message in found] == [ms, ms]


KEY = UniqueKey("k", on_conflict="debounce")
CHOICES = [
    (NewMessage(content="{}"), "pgqueue_message_create(p_content => '{}'::jsonb)"),
    (NewMessage(content="{}", max_attempts=None), "pgqueue_message_create(p_content => '{}'::jsonb, p_max_attempts"),
    (NewMessage(content="{}", when=Delay(5)), "pgqueue_message_create(p_content => '{}'::jsonb, p_dequeue_at"),
    (NewMessage(content="{}", unique=KEY), "pgqueue_message_create_unique(p_content => '{}'::jsonb, p_unique_key"),
    (NewMessage(content="{}", after=After((1,))), "pgqueue_message_create_after(p_content => '{}'::jsonb, p_after_ids"),
]


@pytest.mark.django_db
@pytest.mark.parametrize(("message", "statement"), CHOICES)
def test_a_message_is_enqueued_by_the_function_that_it_needs_with_only_the_needed_parameters(
    message: NewMessage, statement: str
) -> None:
    with CaptureQueriesContext(connection) as queries:
        created = functions.enqueue(connection, message)
    assert [statement in query["sql"] for query in queries] == [True]
    assert created.is_new
    assert Message.objects.get().pk == created.id


@pytest.mark.django_db
def test_the_time_of_an_enqueue_is_that_of_its_row_however_the_database_prints_numbers() -> None:
    with connection.cursor() as cursor:
        cursor.execute("set local extra_float_digits = -8")
    created = functions.enqueue(connection, NewMessage(content="{}"))
    assert created.created_at == Message.objects.get().created_at


@pytest.mark.parametrize(
    "message", [NewMessage(content="1", when=Delay(5)), NewMessage(content="1", after=After((1,)))]
)
def test_a_message_for_single_enqueue_is_refused_in_a_bulk(message: NewMessage) -> None:
    with pytest.raises(ValueError, match="can only be enqueued alone"):
        functions.enqueue_many(connection, [message])


@pytest.mark.django_db
@pytest.mark.parametrize("attempts", [(1, 2), (2, 1)])
def test_the_late_end_of_a_lost_attempt_does_not_hide_the_end_of_the_held_one(attempts: tuple[int, int]) -> None:
    """A worker whose lock ran out may have taken the same message again: both ends may come in one batch."""
    functions.enqueue(connection, NewMessage(content="{}"))
    [received] = functions.message_dequeue(connection, worker="w")
    functions.message_heartbeat(connection, [received], worker="w", lock_ms=0)
    [received] = functions.message_dequeue(connection, worker="w")
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
        functions.Success(message.id, message.attempt, None, us, None if number % 5 else us)
        for number, (message, us) in enumerate(zip(held, map(microseconds, moments), strict=True))
    ]
    functions.message_complete(connection, ends, worker="w")
    found = list(Attempt.objects.order_by("message_id"))
    assert [attempt.started_at for attempt in found] == moments
    assert [attempt.finished_at == moment for attempt, moment in zip(found, moments, strict=True)] == [
        number % 5 == 0 for number in range(len(moments))
    ]
