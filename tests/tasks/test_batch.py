"""Batches: what they have returned goes to their callback, and who has enqueued them may wait."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from datetime import timedelta
from typing import TYPE_CHECKING, Any

import pytest
from django.core.exceptions import SynchronousOnlyOperation
from django.db import connection, transaction

from django_pgqueue import functions
from django_pgqueue.backend import enqueue_many
from django_pgqueue.compat import InvalidTask, TaskResultDoesNotExist
from django_pgqueue.exceptions import ChildFailed, PgQueueError
from django_pgqueue.models import Attempt, Child
from django_pgqueue.tasks import batch
from django_pgqueue.testing import clock, drain
from tests.support.site.tasks import add_up, double_a_number
from tests.tasks.dependent import (
    double,
    gathered,
    gathered_durably,
    gathered_on,
    note,
    noted,
    wait_in_a_task,
)  # fmt: skip

if TYPE_CHECKING:
    from tests.support.fixtures.workers import Start

pytestmark = pytest.mark.django_db


@pytest.fixture(autouse=True)
def _nothing_is_noted() -> None:
    noted.clear()


def forget_the_history() -> None:
    while functions.attempt_maintain(connection, days_kept=0):
        pass
    assert not Attempt.objects.filter(task__endswith="double").exists()


@pytest.mark.slow
@pytest.mark.django_db(transaction=True)
def test_workers_give_the_results_of_a_batch_to_its_callback(start: Start) -> None:
    with batch(add_up, 100, when="succeeded", results=True) as jobs:
        for number in range(8):
            jobs.enqueue(double_a_number, number)
    assert (jobs.done, jobs.total) == (0, 8)
    with pytest.raises(TimeoutError, match=r"^9 of 9 jobs have not ended within 0\.05 seconds\.$"):
        jobs.wait(timeout=0.05)
    start("--threads", "1")
    start("--threads", "2")
    assert [result.return_value for result in jobs.wait(timeout=timedelta(minutes=1))] == [0, 2, 4, 6, 8, 10, 12, 14]
    assert (jobs.done, jobs.total) == (8, 8)
    assert jobs.callback is not None
    assert jobs.callback.return_value == 156


def test_each_attempt_of_a_callback_gets_the_results_however_short_the_history_is() -> None:
    with clock() as now:
        with batch(gathered, "word", results=True) as jobs:
            for number in (3, -1, 5):
                jobs.enqueue(double, number)
        drain(limit=4)  # the first attempt of the callback is the last of them
        now.advance(timedelta(days=3))
        forget_the_history()
        drain()
        assert jobs.callback is not None
        jobs.callback.refresh()
        failed = f"The job {jobs.results[1].id} ended as failed: builtins.ValueError"
        assert jobs.callback.return_value == ["word", "6", failed, "10"]
        first, again = noted
        assert isinstance(first[1], ChildFailed)
        assert (first[1].message_id, first[1].status) == (int(jobs.results[1].id), "failed")
        assert [str(value) for value in first] == [str(value) for value in again]

        [end] = Attempt.objects.filter(message_id=jobs.callback.id, final=True)
        functions.attempt_enqueue(connection, [end.pk])
        drain()
        assert list(map(str, noted[-1])) == ["6", failed, "10"], "also when it is enqueued again from the history"


def test_a_job_gets_the_results_of_what_has_ended_before_its_enqueue() -> None:
    with clock() as now:
        first = double.enqueue(1)
        drain()
        second = double.enqueue(2)
        waits = gathered_on.using(after=[second, first], after_results=True).enqueue()
        now.advance(timedelta(days=3))
        forget_the_history()
        drain()
        waits.refresh()
        assert waits.return_value == [2, 4], "in the order of their ids"
        gathered.using(after=[first], after_results=True).enqueue("late")
        drain()
        assert str(noted[-1][0]) == f"How the job {first.id} ended is not known: it is not in the history any more."


def test_a_durable_callback_tells_its_children_from_the_batch() -> None:
    with batch(gathered_durably, results=True) as jobs:
        for number in (1, 2):
            jobs.enqueue(double, number)
    drain()
    assert [result.return_value for result in jobs.wait()] == [2, 4]
    assert jobs.callback is not None
    assert jobs.callback.return_value == [[2, 4], [100]]


def test_an_empty_batch_has_an_empty_list() -> None:
    with batch(gathered_on, results=True) as jobs:
        pass
    drain()
    assert (jobs.done, jobs.total, jobs.wait()) == (0, 0, [])
    assert jobs.callback is not None
    assert jobs.callback.return_value == []


def test_many_callbacks_of_the_same_jobs_get_the_same_results() -> None:
    first = double.enqueue(1)
    enqueue_many(gathered.using(after=[first], after_results=True), ["a", "b"])
    drain()
    assert noted == [[2]] * 4


def test_results_that_nobody_asked_for_cost_nothing_and_are_refused() -> None:
    with batch(gathered_on) as jobs:
        jobs.enqueue(double, 1)
    assert not Child.objects.exists()
    drain()
    assert jobs.callback is not None
    jobs.callback.refresh()
    assert "has asked for no results: enqueue it by batch(…, results=True)" in jobs.callback.errors[0].traceback


def test_what_can_have_no_results_is_refused_before_anything_is_enqueued() -> None:
    for wrong, expected in (
        (lambda: note.using(after_results=True), r"has no context to read them from: .*takes_context=True"),
        (lambda: gathered.using(after_results=1), "after_results must be True or False, not 1"),  # type: ignore[arg-type]
    ):
        with pytest.raises(InvalidTask, match=expected):
            wrong()


def test_what_no_callback_would_see_is_refused(settings: Any) -> None:
    def enter(*args: Any, **options: Any) -> None:
        with batch(*args, **options):
            pass

    with batch(note, "late") as jobs, pytest.raises(InvalidTask, match="is no task"):
        jobs.enqueue(double.func, 1)  # type: ignore[arg-type]
    with pytest.raises(PgQueueError, match="no callback would wait for another job"):
        jobs.enqueue(double, 1)
    for wrong in ({"results": True}, {"when": "succeeded"}, {"timeout": 3}):
        with pytest.raises(TypeError, match="without a callback takes neither arguments nor"):
            enter(**wrong)
    with pytest.raises(InvalidTask, match="is no task: batch"):
        enter("note")
    begun = []
    for wrong, expected in (
        ({"when": "success"}, "^when must be one of finished, succeeded, not 'success'"),
        ({"results": True}, "has no context to read them from"),
    ):
        with pytest.raises(InvalidTask, match=expected), batch(note, "late", **wrong):
            begun.append(wrong)
    assert not begun
    settings.TASKS = {"default": {"BACKEND": "django_pgqueue.stand_ins.DummyBackend"}}
    with pytest.raises(InvalidTask, match="needs the backend of this package, and 'default' is DummyBackend"):
        enter()


def test_a_batch_that_was_rolled_back_says_so() -> None:
    with suppress(OSError), transaction.atomic():
        with batch(gathered_on) as outside:
            outside.enqueue(double, 1)
        raise OSError
    with suppress(OSError), batch() as inside:
        inside.enqueue(double, 1)
        raise OSError
    with batch() as partly:
        partly.enqueue(double, 1)
        with suppress(OSError), transaction.atomic():
            partly.enqueue(double, 2)
            raise OSError
    drain()
    for jobs, known, unknown in ((outside, 2, 2), (inside, 1, 1), (partly, 2, 1)):
        words = f"^This batch has {known} jobs, and the database knows nothing of {unknown}: .* was rolled back"
        with pytest.raises(TaskResultDoesNotExist, match=words):
            jobs.wait(timeout=1)
        with pytest.raises(TaskResultDoesNotExist, match=r"was rolled back"):
            _ = jobs.done


def test_a_wait_that_could_not_end_is_refused() -> None:
    with batch() as jobs:
        jobs.enqueue(double, 1)
    with pytest.raises(PgQueueError, match="cannot while this transaction is open"), transaction.atomic():
        jobs.wait()
    result = wait_in_a_task.enqueue()
    drain(limit=2)
    result.refresh()
    assert "holds the slot that they may need. Let a callback come after them" in result.errors[0].traceback


def test_async_code_is_told_to_put_a_batch_into_a_function() -> None:
    async def enqueue() -> None:
        async with batch():  # type: ignore[attr-defined]
            raise AssertionError

    async def enqueue_more() -> None:
        enqueue_many(double, [1])

    with pytest.raises(SynchronousOnlyOperation, match=r"batch\(\) .* await sync_to_async\(a function with it\)"):
        asyncio.run(enqueue())
    with pytest.raises(SynchronousOnlyOperation, match=r"await sync_to_async\(enqueue_many\)"):
        asyncio.run(enqueue_more())
