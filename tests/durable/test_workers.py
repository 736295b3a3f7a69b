"""Durable tasks of real workers: taken over, late, woken."""

from __future__ import annotations

import signal
from typing import TYPE_CHECKING

import pytest
from django.db import connection

from django_pgqueue.durable import emit
from django_pgqueue.models import Message, Step
from tests.support.site.tasks import hold_between_steps, wait_for_word
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
    late.says(f"lost id={result.id} attempt=1")
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
