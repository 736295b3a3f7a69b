"""Durable tasks of real workers: taken over, late, woken."""

from __future__ import annotations

import signal
from typing import TYPE_CHECKING

import pytest
from django.db import connection

from django_pgqueue import control
from django_pgqueue.durable import emit
from django_pgqueue.models import Message, Step
from tests.support.site.tasks import hold_between_steps, hold_between_steps_on, wait_for_word
from tests.support.waiting import wait_until
from tests.support.watching import ended, started, statuses

if TYPE_CHECKING:
    from tests.support.diary import Diary
    from tests.support.fixtures.workers import Start

pytestmark = [pytest.mark.slow, pytest.mark.once]
SHORT_LOCK = ("--lock-seconds", "1")


def words() -> list[str]:
    with connection.cursor() as cursor:
        cursor.execute("select word from worker_row order by word")
        return [word for (word,) in cursor.fetchall()]


def test_after_a_kill_only_the_step_in_flight_is_repeated(start: Start, diary: Diary) -> None:
    result = hold_between_steps.enqueue("x")
    killed = start(*SHORT_LOCK)
    started(diary, "x held")
    killed.kill()
    start(*SHORT_LOCK)
    started(diary, "x held", attempt=2)
    diary.allow("x held-2")
    assert ended(result).return_value == ["x before", "x held", "x after"]
    assert diary.words() == ["x before", "x held", "x held", "x after"]
    assert words() == ["x after", "x before"]
    assert statuses(result) == ["lost", "succeeded"]


def test_the_step_of_a_late_worker_is_not_recorded(start: Start, diary: Diary) -> None:
    result = hold_between_steps.enqueue("x")
    late = start(*SHORT_LOCK)
    started(diary, "x held")
    late.send_to_group(signal.SIGSTOP)
    start(*SHORT_LOCK)
    started(diary, "x held", attempt=2)
    diary.allow("x held-1")
    late.send_to_group(signal.SIGCONT)
    late.says(f"lost id={result.id} attempt=1:")
    assert f"failed id={result.id}" not in late.output
    assert not Step.objects.filter(name="held").exists()
    diary.allow("x held-2")
    assert ended(result).return_value == ["x before", "x held", "x after"]
    assert words() == ["x after", "x before"]


def test_an_event_wakes_a_task_that_waits_while_all_workers_sleep(start: Start, diary: Diary) -> None:
    start()
    results = [wait_for_word.enqueue(f"word {n}") for n in range(3)]
    wait_until(lambda: Message.objects.filter(awaited_event__isnull=False).count() == 3, "all of them wait")
    for number in range(3):
        emit(f"word {number}", number)
    assert [ended(result).return_value for result in results] == [0, 1, 2]
    assert statuses(results[0]) == ["suspended", "succeeded"]


def test_an_atomic_step_of_an_async_task_is_done_once_through_a_timeout(start: Start, diary: Diary) -> None:
    result = hold_between_steps_on.enqueue("x")
    start()
    started(diary, "x held")
    for attempt in range(2, 6):  # the thread of the first one may hold up a second one
        diary.allow(f"x held-{attempt}")
    wait_until(lambda: statuses(result), "the timeout has ended it")
    diary.allow("x held-1")
    assert ended(result).return_value == ["x before", "x held"]
    assert words() == ["x before", "x held"]
    assert diary.words().count("x before") == 1


@pytest.mark.parametrize("end", ["cancel", "shutdown"])
def test_an_atomic_step_of_an_async_task_that_is_stopped_has_happened_with_its_record_or_not(
    start: Start, diary: Diary, end: str
) -> None:
    result = hold_between_steps_on.enqueue("x")
    first = start("--grace-seconds", "1", *SHORT_LOCK)
    started(diary, "x held")
    if end == "cancel":
        control.cancel(result)
    else:
        first.send(signal.SIGTERM)
        start(*SHORT_LOCK)
    for attempt in range(1, 6):
        diary.allow(f"x held-{attempt}")
    ended(result)
    held = Step.objects.filter(message_id=int(result.id), name="held", status="done").count()
    assert held == words().count("x held") <= 1
    assert words().count("x before") == 1
    if end == "shutdown":
        assert result.return_value == ["x before", "x held"]
