"""Jobs that come after others."""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING, Any

import pytest
from django.contrib.auth.models import Group
from django.db import connection

from django_pgqueue import functions
from django_pgqueue.compat import InvalidTask, TaskResultStatus
from django_pgqueue.models import Attempt, Message
from django_pgqueue.tasks import batch
from django_pgqueue.testing import clock, drain
from django_pgqueue.worker.upkeep import upkeep
from tests.support.site.tasks import hold, nothing
from tests.support.waiting import wait_until
from tests.support.watching import ended
from tests.tasks.dependent import fail, note, noted, retried

if TYPE_CHECKING:
    from tests.support.diary import Diary
    from tests.support.fixtures.consumers import Consume

pytestmark = pytest.mark.django_db


@pytest.fixture(autouse=True)
def _nothing_is_noted() -> None:
    noted.clear()


def statuses(results: list[Any]) -> list[str]:
    return [result.status.value for result in results]


def test_a_job_waits_for_the_one_before_it_whatever_the_priorities() -> None:
    first = note.enqueue("first")
    second = note.using(after=[first], priority=50).enqueue("second")
    note.using(after=[second], priority=100).enqueue("third")

    drain()

    assert noted == ["first", "second", "third"]


def test_a_waiting_job_is_ready_in_the_eyes_of_django_tasks() -> None:
    first = note.using(run_after=timedelta(hours=1)).enqueue("first")
    second = note.using(after=[first]).enqueue("second")

    assert drain() == []
    assert note.get_result(second.id).status == TaskResultStatus.READY


@pytest.mark.parametrize("count", [0, 30])
def test_a_batch_runs_its_callback_after_all_of_its_jobs(count: int) -> None:
    with batch(note, "all done") as jobs:
        for number in range(count):
            jobs.enqueue(note, number)

    drain()

    assert noted == [*range(count), "all done"]
    assert jobs.callback is not None
    assert note.get_result(jobs.callback.id).status == TaskResultStatus.SUCCESSFUL


def test_a_batch_that_raises_enqueues_nothing() -> None:
    def change_ones_mind() -> None:
        with batch(note, "never") as jobs:
            jobs.enqueue(note, 1)
            raise KeyError

    with pytest.raises(KeyError):
        change_ones_mind()

    assert not Message.objects.exists()


def test_a_job_that_is_retried_has_not_ended() -> None:
    with clock() as now:
        first = retried.enqueue()
        note.using(after=[first]).enqueue("after the last attempt")
        assert statuses(drain()) == ["READY"]
        assert noted == []
        now.advance(timedelta(minutes=1))
        drain()

    assert noted == ["after the last attempt"]


def test_after_a_failure_the_job_runs_unless_its_policy_forbids_it() -> None:
    bad = fail.enqueue()
    note.using(after=[bad]).enqueue("all the same")
    wants_success = note.using(after=[bad], after_policy="succeeded").enqueue("never")
    after_that = note.using(after=[wants_success]).enqueue("after the cancelled one")

    drain()

    assert noted == ["all the same", "after the cancelled one"]
    cancelled = Attempt.objects.get(message_id=int(wants_success.id))
    assert (cancelled.status, cancelled.final) == ("cancelled", True)
    assert cancelled.error_class == "django_pgqueue.exceptions.DependencyFailed"
    assert f"message {bad.id}" in (cancelled.error_message or "")
    assert note.get_result(wants_success.id).status == TaskResultStatus.FAILED
    assert note.get_result(after_that.id).status == TaskResultStatus.SUCCESSFUL


def test_an_ended_job_is_not_waited_for() -> None:
    first = note.enqueue("first")
    drain()
    note.using(after=[first.id, int(first.id)]).enqueue("second")

    drain()

    assert noted == ["first", "second"]


@pytest.mark.parametrize(
    ("wrong", "says"),
    [
        ({"after": ["x"]}, "'x'"),
        ({"after": [True]}, "True"),
        ({"after": [None]}, "None"),
        ({"after": [Group(id=7, name="tea")]}, "<Group: tea>, which is neither the result"),
        ({"after": [10**30]}, "which is neither the result"),
        ({"after": "12"}, r"after is '12', and must be a list"),
        ({"after": 12}, r"after is 12, and must be a list"),
        ({"after": [1], "after_policy": "maybe"}, "'maybe'"),
        ({"after": range(100_001)}, "100,001"),
        ({"after": [1], "unique_key": "k"}, "unique_key"),
    ],
)
def test_invalid_options_are_named(wrong: dict[str, Any], says: str) -> None:
    with pytest.raises(InvalidTask, match=says):
        note.using(**wrong)


def test_a_check_that_is_not_due_does_not_run() -> None:
    with clock() as now:
        first = note.using(run_after=timedelta(days=1)).enqueue("first")
        second = note.using(after=[first]).enqueue("second")
        checks: list[Any] = []
        for _ in range(3):
            assert functions.message_settle(connection) == 0
            checks.append(Message.objects.get(pk=second.id).checks)
        now.advance(timedelta(seconds=20))
        assert functions.message_settle(connection) == 0

    assert checks == [checks[0]] * 3
    assert Message.objects.get(pk=second.id).checks == checks[0] + 1


@pytest.mark.django_db(transaction=True)
def test_the_end_of_the_other_begins_a_job_that_nobody_looks_at_any_more(consume: Consume, diary: Diary) -> None:
    first = hold.enqueue("first")
    second = hold.using(after=[first]).enqueue("second")
    consume()
    wait_until(diary.words, "the first one runs")
    looked = Message.objects.filter(pk=second.id, check_at=None)
    wait_until(looked.exists, "nobody looks at it any more")
    diary.allow("first-1")
    diary.allow("second-1")
    ended(second)


@pytest.mark.django_db(transaction=True)
def test_a_burst_runs_jobs_that_waited_for_its_last_ones(consume: Consume, monkeypatch: pytest.MonkeyPatch) -> None:
    """It has no time to wait for the next look at those that wait."""
    monkeypatch.setattr(upkeep, "SETTLE_EVERY_SECONDS", 600.0)
    results = [nothing.enqueue()]
    results += [nothing.using(after=results[:1]).enqueue()]
    results += [nothing.using(after=results[1:]).enqueue()]
    consume(burst=True)
    assert statuses([ended(result) for result in results]) == ["SUCCESSFUL"] * 3
