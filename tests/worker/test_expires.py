"""``expires``: a message that nobody began by its time is cancelled, and its task does not run."""

from __future__ import annotations

import datetime as dt
import json
import re
from typing import TYPE_CHECKING, Any

import pytest
from django.db import connection

from django_pgqueue import functions
from django_pgqueue.backend import enqueue_many
from django_pgqueue.compat import InvalidTask, TaskResultStatus
from django_pgqueue.models import Attempt
from django_pgqueue.tasks import task
from django_pgqueue.testing import clock, drain
from tests.support.site.tasks import fail, nothing
from tests.support.watching import statuses

if TYPE_CHECKING:
    from collections.abc import Iterator

    from django_pgqueue.testing import Clock

MINUTE = dt.timedelta(minutes=1)


@pytest.fixture
def now(db: None) -> Iterator[Clock]:
    with clock() as stopped:
        yield stopped


def test_a_message_that_nobody_began_in_time_ends_without_running(now: Clock) -> None:
    late = nothing.using(expires=MINUTE).enqueue(1, 2)
    late_at = nothing.using(expires=now.at + MINUTE).enqueue(1, 2)
    enqueue_many(nothing.using(expires=MINUTE), [(1, 2)])
    in_time = nothing.using(expires=3 * MINUTE).enqueue(1, 2)
    without = nothing.enqueue(1, 2)
    now.advance(2 * MINUTE)
    drain()
    expired = Attempt.objects.filter(status="cancelled")
    assert len(expired) == 3
    for attempt in expired:
        assert attempt.error_class == "django_pgqueue.exceptions.TaskExpired"
        assert "Nobody began the message by 2" in (attempt.error_message or "")
    for result in (late, late_at):
        assert statuses(result) == ["cancelled"]
        result.refresh()
        assert result.status == TaskResultStatus.FAILED
    assert statuses(in_time) == statuses(without) == ["succeeded"]


def test_a_message_that_has_begun_does_not_expire_between_its_attempts(now: Clock) -> None:
    result = fail.using(expires=MINUTE, max_attempts=2).enqueue("twice")
    drain()
    now.advance(dt.timedelta(hours=2))
    drain()
    assert statuses(result) == ["retried", "failed"]


@pytest.mark.parametrize("is_absolute", [False, True], ids=["a time from the enqueue on", "a datetime"])
@pytest.mark.parametrize("on_conflict", ["replace", "debounce"])
def test_a_unique_message_expires_when_the_last_call_says(now: Clock, on_conflict: str, is_absolute: bool) -> None:
    def enqueue() -> Any:
        expires = now.at + 10 * MINUTE if is_absolute else 10 * MINUTE
        options: dict[str, Any] = {
            "unique_key": "k",
            "on_conflict": on_conflict,
            "run_after": 5 * MINUTE,
            "expires": expires,
        }
        return nothing.using(**options).enqueue(1, 2)

    for waits, status in ((5 * MINUTE, "succeeded"), (11 * MINUTE, "cancelled")):
        for _ in range(4):
            now.advance(4 * MINUTE)
            result = enqueue()
        now.advance(waits)
        drain()
        assert statuses(result) == [status]


def test_a_message_that_is_enqueued_again_does_not_keep_its_old_time(now: Clock) -> None:
    nothing.using(expires=MINUTE).enqueue(1, 2)
    now.advance(2 * MINUTE)
    drain()
    functions.attempt_enqueue(connection, [Attempt.objects.get().pk])
    drain()
    assert [each.status for each in Attempt.objects.order_by("id")] == ["cancelled", "succeeded"]


@pytest.mark.parametrize("hours", [-5, 5])
def test_a_message_that_expires_at_the_end_of_the_calendar_never_does(now: Clock, hours: int) -> None:
    end = dt.datetime.max.replace(tzinfo=dt.timezone(dt.timedelta(hours=hours)))
    result = nothing.using(expires=end).enqueue(1, 2)
    drain()
    assert statuses(result) == ["succeeded"]


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"expires": 60}, "expires must be a timedelta from the enqueue on, or an aware datetime, not 60"),
        ({"expires": dt.timedelta(0)}, "expires must be a timedelta above 0"),
        ({"expires": dt.datetime(2030, 1, 1)}, "has no time zone"),  # noqa: DTZ001 -- that is the mistake
        ({"expires": MINUTE, "run_after": MINUTE}, "before it may run after 0:01:00"),
        (
            {
                "expires": dt.datetime(2030, 1, 1, tzinfo=dt.UTC),
                "run_after": dt.datetime(2031, 1, 1, tzinfo=dt.UTC),
            },
            "before it may run at 2031-01-01",
        ),
    ],
)
def test_a_wrong_time_is_refused(options: dict[str, Any], words: str) -> None:
    with pytest.raises(InvalidTask, match=words):
        nothing.using(**options)


@pytest.mark.parametrize(
    ("headers", "quoted"),
    [
        ({"expires_us": "soon"}, "'soon'"),
        ({"expires_us": [1]}, r"\[1\]"),
        ({"expires_us": None}, "None"),
        ({"expires_at": "tomorrow"}, "'tomorrow'"),
        ({"expires_at": 7}, "7"),
        ({"expires_at": "0001-01-01T00:00:00+23:00"}, "'0001-01-01T00:00:00"),
        ({"expires_us": 1e300}, None),
        (["expires_us"], None),
    ],
)
def test_headers_that_sql_wrote_wrongly_are_an_error_that_says_so(now: Clock, headers: Any, quoted: str | None) -> None:
    """Or have no meaning, as a list has none; no raw error of Python's."""
    functions.enqueue(
        connection,
        functions.NewMessage(
            content='{"args": [1, 2], "kwargs": {}}', task=nothing.module_path, headers=json.dumps(headers)
        ),
    )
    now.advance(MINUTE)
    drain()
    attempt = Attempt.objects.get()
    if quoted is None:
        assert attempt.error_class in (None, "django_pgqueue.exceptions.TaskExpired")
    else:
        assert attempt.error_class == "django_pgqueue.exceptions.InvalidContent"
        assert re.search(f"do not say when it expires: .* not {quoted}", attempt.error_message or "")


def test_a_task_may_declare_it() -> None:
    declared = task(expires=MINUTE)(declared_function)
    assert declared.expires == MINUTE
    assert declared.using(expires=2 * MINUTE).expires == 2 * MINUTE


def declared_function() -> None: ...
