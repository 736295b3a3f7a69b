"""The signals of django.tasks: in their order, from the worker that runs the task, and never to its harm."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from django.db import transaction

from django_pgqueue.compat import task_enqueued
from tests.support.site.tasks import fail, fail_on, fail_once_on, write
from tests.support.watching import ended

if TYPE_CHECKING:
    from collections.abc import Iterator

    from django_pgqueue.compat import AnyTaskResult
    from tests.support.diary import Diary
    from tests.support.fixtures.workers import Start

SENDER = "django_pgqueue.backend.pgqueue.PgQueueBackend"
WORDS = ("enqueued", "started", "finished")


@pytest.fixture(autouse=True)
def enqueued(diary: Diary) -> Iterator[None]:
    def note(sender: type, task_result: AnyTaskResult, **_: Any) -> None:
        assert f"{sender.__module__}.{sender.__qualname__}" == SENDER
        diary.write("enqueued", id=task_result.id)

    task_enqueued.connect(note)
    yield
    task_enqueued.disconnect(note)


def heard(diary: Diary, result: AnyTaskResult) -> list[list[Any]]:
    return [
        [entry["word"], entry.get("status"), entry.get("attempts"), entry.get("error")]
        for entry in diary.entries()
        if entry["word"] in WORDS and entry["id"] == result.id
    ]


@pytest.mark.parametrize("failing", [fail, fail_on], ids=["thread", "coroutine"])
def test_each_job_is_enqueued_started_and_finished(start: Start, diary: Diary, failing: Any) -> None:
    """Although another receiver raises each time.  A failure is told inside the except block."""
    start("-v", "0", ready=False, PGQUEUE_TEST_SIGNALS="1")
    with transaction.atomic():  # without, the worker may be faster than the receiver of "enqueued"
        done, failed = write.enqueue("x"), failing.enqueue("exception")
    assert [ended(done).status, ended(failed).status] == ["SUCCESSFUL", "FAILED"]
    assert heard(diary, done) == [
        ["enqueued", None, None, None],
        ["started", "RUNNING", 1, None],
        ["finished", "SUCCESSFUL", 1, None],
    ]
    assert heard(diary, failed) == [
        ["enqueued", None, None, None],
        ["started", "RUNNING", 1, None],
        ["finished", "FAILED", 1, "ValueError"],
    ]
    assert {entry["sender"] for entry in diary.entries() if "sender" in entry} == {SENDER}


def test_a_job_that_is_tried_again_is_started_twice_and_finished_once(start: Start, diary: Diary) -> None:
    with transaction.atomic():
        result = fail_once_on.using(max_attempts=2).enqueue()
    start("-v", "0", ready=False, PGQUEUE_TEST_SIGNALS="1")
    ended(result)
    assert [entry[:3] for entry in heard(diary, result)] == [
        ["enqueued", None, None],
        ["started", "RUNNING", 1],
        ["started", "RUNNING", 2],
        ["finished", "SUCCESSFUL", 2],
    ]


@pytest.mark.parametrize("task", [write, fail_on], ids=["thread", "coroutine"])
def test_a_receiver_that_wants_to_leave_ends_neither_job_nor_worker(start: Start, task: Any) -> None:
    worker = start("-v", "0", "--threads", "1", ready=False, PGQUEUE_TEST_SIGNALS="1")
    for word in ("leave", "after"):
        assert ended(task.enqueue(word)).return_value == word
    assert worker.stop() == 0
    assert "crashed" not in worker.output
    for signal in ("task_started", "task_finished"):
        assert f"receiver failed signal={signal} receiver=None" in worker.output
        assert f"receiver failed signal={signal} receiver=misbehave" in worker.output
    assert "RuntimeError: this receiver is broken" in worker.output
