"""Retries: when a job that failed is tried again, and when it is given up."""

from __future__ import annotations

import datetime as dt
from typing import TYPE_CHECKING, Any

import pytest
from django.db import connection

from django_pgqueue import functions
from django_pgqueue.models import Message
from django_pgqueue.tasks.retry import DEFAULT
from django_pgqueue.testing import clock, drain
from tests.support.site import tasks
from tests.support.site.tasks import fail, fail_for_minutes, fail_patiently, fail_with_backoff
from tests.support.waiting import wait_until
from tests.support.watching import ended, statuses

if TYPE_CHECKING:
    from collections.abc import Iterator

    from django_pgqueue.compat import AnyTask, AnyTaskResult
    from django_pgqueue.testing import Clock
    from tests.support.fixtures.consumers import Consume

HOUR = dt.timedelta(hours=1)
MILLISECOND = 0.001
"""Times in the table are whole milliseconds."""

DEFAULT_WAIT = pytest.approx(DEFAULT.base * (1 + DEFAULT.jitter), abs=2 * MILLISECOND)


@pytest.fixture(autouse=True)
def _longest_waits(monkeypatch: pytest.MonkeyPatch) -> None:
    """Not by chance: each wait is the longest that jitter makes."""
    monkeypatch.setattr("random.uniform", lambda _low, high: high)


@pytest.fixture
def now(db: None) -> Iterator[Clock]:
    with clock() as stopped:
        yield stopped


def seconds_until(result: AnyTaskResult, now: Clock) -> float:
    """How long a job still waits."""
    dequeue_at = Message.objects.get(pk=result.id).dequeue_at
    return float((dequeue_at - now.at).total_seconds())


def test_each_attempt_waits_longer_than_the_one_before(now: Clock) -> None:
    result = fail.using(max_attempts=6).enqueue("six times")
    waits = []
    for _ in range(5):
        run()
        waits.append(seconds_until(result, now))
        now.advance(HOUR)
    run()
    for number, wait in enumerate(waits):
        assert wait == pytest.approx(DEFAULT_WAIT.expected * DEFAULT.factor**number, abs=2 * MILLISECOND)
    assert statuses(result) == ["retried"] * 5 + ["failed"]


def test_backoff_is_called_with_the_exception_and_the_result(now: Clock, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tasks, "backoff_calls", [])
    result = fail_with_backoff.enqueue(120)
    run()
    [(exception, task_result)] = tasks.backoff_calls
    assert isinstance(exception, ValueError)
    assert exception.args == (120,)
    assert (task_result.id, task_result.attempts, len(task_result.errors)) == (result.id, 1, 1)
    assert seconds_until(result, now) == pytest.approx(120, abs=2 * MILLISECOND)


def test_a_backoff_may_return_a_timedelta(now: Clock) -> None:
    result = fail_with_backoff.enqueue("two minutes")
    run()
    assert seconds_until(result, now) == pytest.approx(120, abs=2 * MILLISECOND)


def test_a_backoff_that_returns_none_gives_up(now: Clock) -> None:
    [result] = run(fail_with_backoff.enqueue("give up"))
    assert statuses(result) == ["failed"]


@pytest.mark.parametrize("answer", ["raise", "text", "nan"])
def test_a_broken_backoff_is_logged_and_falls_back_to_the_usual_one(
    now: Clock, caplog: pytest.LogCaptureFixture, answer: str
) -> None:
    result = fail_with_backoff.enqueue(answer)
    run()
    assert seconds_until(result, now) == DEFAULT_WAIT
    assert statuses(result) == ["retried"]
    assert "The backoff of task=tests.support.site.tasks.fail_with_backoff failed" in caplog.text


@pytest.mark.parametrize("task", [fail_patiently, fail_for_minutes], ids=["by the exception", "as a timedelta"])
def test_a_class_of_the_project_s_decides_by_itself(now: Clock, task: AnyTask) -> None:
    result = task.enqueue()
    run()
    assert seconds_until(result, now) == pytest.approx(120, abs=2 * MILLISECOND)


@pytest.mark.parametrize("answer", [0, -5, -1e300, "-inf"])
def test_a_negative_wait_is_no_wait(now: Clock, answer: Any) -> None:
    result = fail_with_backoff.enqueue(answer)
    assert len(run()) == 4
    assert statuses(result) == ["retried"] * 3 + ["failed"]


@pytest.mark.parametrize("answer", [1e15, 1e300, "inf"])
def test_an_infinite_wait_harms_no_other_job(now: Clock, answer: Any) -> None:
    result = fail_with_backoff.enqueue(answer)
    run()
    assert seconds_until(result, now) > 99 * 365 * 86_400
    assert statuses(result) == ["retried"]


def test_a_backoff_that_raises_system_exit_ends_neither_worker_nor_slot(consume: Consume) -> None:
    broken, given_up = (fail_with_backoff.enqueue(word) for word in ("exit", "give up"))
    consume(threads=1)
    wait_until(lambda: statuses(broken)[:1] == ["retried"], "its attempt is one that failed")
    assert statuses(ended(given_up)) == ["failed"]


def run(*_: AnyTaskResult) -> list[AnyTaskResult]:
    return drain()


def test_losses_lengthen_no_wait_and_use_no_attempt(now: Clock) -> None:
    """An operator has killed its workers many times; then it raises, twice."""
    result = fail.using(max_attempts=2).enqueue("x")
    lose(8)
    run()
    assert seconds_until(result, now) == DEFAULT_WAIT
    now.advance(HOUR)
    run()
    assert statuses(result) == ["lost"] * 8 + ["retried", "failed"]


def test_losses_lengthen_no_wait_of_a_class_with_other_seconds(now: Clock) -> None:
    result = fail_for_minutes.enqueue()
    lose(8)
    run()
    assert seconds_until(result, now) == pytest.approx(120, abs=2 * MILLISECOND)


def lose(times: int) -> None:
    with connection.cursor() as cursor:
        for _ in range(times):
            cursor.execute("select id, attempt from pgqueue_message_dequeue(p_tasks => true, p_worker => 'w')")
            if (held := cursor.fetchone()) is None:
                cursor.execute("select id, attempt from pgqueue_quarantine_dequeue(p_worker => 'w')")
                held = cursor.fetchone()
            functions.worker_died(connection, "w", ids=[held[0]], attempts=[held[1]], running=[True])
