"""Receivers of task_started and task_finished: all are heard, whatever they and the task are, and none does harm."""

from __future__ import annotations

import logging
from itertools import product
from typing import TYPE_CHECKING, Any

import pytest

from django_pgqueue import control
from django_pgqueue.compat import TASKS_LOGGER
from django_pgqueue.testing import drain
from tests.support.site import jobs, receivers
from tests.support.site.receivers import Heard, listening
from tests.support.waiting import wait_until
from tests.support.watching import ended, statuses

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.support.diary import Diary
    from tests.support.fixtures.consumers import Consume, Effects

pytestmark = pytest.mark.django_db(transaction=True)

KINDS: list[Any] = [jobs.follow, jobs.follow_async, jobs.follow_atomically]
plain_and_async = pytest.mark.parametrize("task", [jobs.write, jobs.write_async], ids=["plain", "async"])
ALL = dict.fromkeys(("started, plain", "finished, plain", "started, async", "finished, async"), 1)


@pytest.fixture
def heard(effects: Effects) -> Iterator[Heard]:
    heard = Heard()
    with heard.listening():
        yield heard


class TestAllAreHeard:
    """Of plain, async and atomic tasks."""

    def test_receivers_may_use_the_database(self, consume: Consume, effects: Effects, heard: Heard) -> None:
        """In a transaction of their own, which is neither the task's nor left open."""
        consume()
        for number, task in enumerate(KINDS, start=1):
            heard.said.clear()
            assert ended(task.enqueue()).status == "SUCCESSFUL"
            wait_until(lambda: heard.words() == ALL, "all have heard of it")  # of an atomic one after its commit
            assert effects() == sorted(list(ALL) * number)
            assert heard.of("started", "status", "error") == [("RUNNING", None)] * 2
            assert heard.of("finished", "status", "error") == [("SUCCESSFUL", None)] * 2
            assert set(heard.of("", "in transaction")) == {(False,)}

    def test_receivers_of_a_failure_get_its_exception(self, consume: Consume, effects: Effects, heard: Heard) -> None:
        consume()
        for number, task in enumerate(KINDS, start=1):
            heard.said.clear()
            assert ended(task.enqueue({"raise": "OSError"})).status == "FAILED"
            assert heard.words() == ALL
            assert effects() == sorted(list(ALL) * number)
            assert heard.of("finished", "status", "errors", "error") == [("FAILED", 1, "OSError")] * 2

    def test_receivers_are_called_in_drain(self, effects: Effects, heard: Heard) -> None:
        for task in KINDS:
            task.enqueue()
        drain()
        assert heard.words() == dict.fromkeys(ALL, 3)
        assert effects() == sorted(list(ALL) * 3)

    def test_receivers_of_async_tasks_share_their_thread(self, consume: Consume, heard: Heard) -> None:
        consume()
        ended(jobs.follow_async.enqueue())
        ended(jobs.follow.enqueue())
        threads = [thread for [thread] in heard.of("", "thread")]
        assert len(set(threads[:4])) == 1
        assert threads[0] != "coroutines"
        assert {thread.partition("-")[0] for thread in threads[4:]} == {"slot"}

    def test_a_project_without_receivers_uses_no_extra_thread(
        self, consume: Consume, caplog: pytest.LogCaptureFixture
    ) -> None:
        """Django's own, which only log, run where the task does: another thread costs more than a short task."""
        caplog.set_level(logging.INFO, TASKS_LOGGER)
        consume()
        ended(jobs.follow_async.enqueue())
        lines = [record for record in caplog.records if record.name == TASKS_LOGGER]
        assert [line.threadName for line in lines] == ["coroutines"] * 2


class TestLookingBack:
    """Receivers that are the first to look at earlier attempts, after the end of this one was recorded."""

    @pytest.mark.slow
    def test_the_result_has_each_attempt_and_its_error_once(self, consume: Consume) -> None:
        seen: list[tuple[int, int]] = []

        def look(task_result: Any, **_: Any) -> None:
            assert statuses(task_result)[-1] in ("succeeded", "failed")
            seen.append((task_result.attempts, len(task_result.errors)))

        consume()
        for steps in ([{"defer": 0}, {"retry": 0}], [{"defer": 0}, *[{"retry": 0}] * 5]):
            seen.clear()
            with listening("finished", look):
                ended(jobs.follow_atomically.enqueue(*steps))
                wait_until(lambda: seen, "the receiver has looked")
            assert seen == [(3, 1) if len(steps) == 2 else (6, 5)]


def is_told(record: logging.LogRecord) -> bool:
    return "receiver failed" in record.getMessage()


class TestNoneDoesHarm:
    @pytest.mark.parametrize("signal", ["started", "finished"])
    def test_the_error_of_a_receiver_is_logged(
        self, consume: Consume, caplog: pytest.LogCaptureFixture, signal: str
    ) -> None:
        consume()
        wrong = {
            receivers.raise_an_error: "receiver=raise_an_error",
            receivers.raise_an_error_async: "receiver=raise_an_error_async",
            receivers.want_to_leave: "error=SystemExit",
            receivers.want_to_leave_async: "error=SystemExit",
        }
        for task, (receiver, said) in product(KINDS, wrong.items()):
            caplog.clear()
            with listening(signal, receiver):
                result = ended(task.enqueue())
                # An atomic task has ended before its signal is sent.
                wait_until(lambda: any(map(is_told, caplog.records)), "its error is logged")
            assert statuses(result) == ["succeeded"]
            [line] = filter(is_told, caplog.records)
            assert line.name == "django_pgqueue.worker"
            assert line.exc_info
            assert f"signal=task_{signal} " in line.getMessage()
            assert said in line.getMessage()
            assert f"id={result.id} task={task.module_path}" in line.getMessage()

    @plain_and_async
    def test_a_transaction_left_open_by_a_receiver_does_not_swallow_task_writes(
        self, consume: Consume, effects: Effects, caplog: pytest.LogCaptureFixture, task: Any
    ) -> None:
        with listening("started", receivers.leave_a_transaction_open):
            consume()
            ended(task.enqueue("x"))
        assert effects() == ["x"]
        assert "A receiver of task_started of message id=" in caplog.text

    @plain_and_async
    def test_a_transaction_that_the_last_receiver_leaves_open_is_rolled_back(
        self, consume: Consume, effects: Effects, task: Any
    ) -> None:
        with listening("finished", receivers.leave_a_transaction_open):
            consume()
            ended(task.enqueue("x"))
        ended(task.enqueue("y"))
        assert effects() == ["x", "y"]
        assert effects.writers() == []

    def test_a_request_to_cancel_during_the_receiver_is_too_late(self, consume: Consume, diary: Diary) -> None:
        def wait(task_result: Any, **_: Any) -> None:
            assert control.cancel(task_result) == "requested"
            consumer_knows = task_result.id
            wait_until(lambda: int(consumer_knows) in consumer.slots.reports.cancelled, "the worker knows")
            diary.write("heard")

        consumer = consume()
        with listening("finished", wait):
            result = ended(jobs.follow_async.enqueue())
        assert statuses(result) == ["succeeded"]
        assert diary.words() == ["heard"]


class TestWhatDoesNotGoOn:
    """What the worker puts back, and what SQL then makes an end of."""

    @pytest.mark.parametrize(("then", "error"), [("retry", "Retry"), ("error", "OSError"), ("defer", None)])
    def test_a_cancelled_task_sends_task_finished(
        self, consume: Consume, diary: Diary, heard: Heard, then: str, error: str | None
    ) -> None:
        consume()
        result = jobs.wait_for_a_request.using(max_attempts=3).enqueue(then)
        wait_until(diary.words, "it runs")
        assert control.cancel(result) == "requested"
        assert ended(result).status == "FAILED"
        wait_until(lambda: heard.words() == ALL, "all have heard of it")
        told = ("status", "attempts", "errors", "error", "history")
        assert heard.of("finished", *told) == [("FAILED", 1, int(then != "defer"), error, ["cancelled"])] * 2

    @pytest.mark.slow
    def test_a_task_without_attempts_left_sends_task_finished(self, consume: Consume, heard: Heard) -> None:
        consume()
        history = ["retried"] * 4 + ["failed"]
        for task in KINDS:
            heard.said.clear()
            assert statuses(ended(task.enqueue(*[{"retry": 0}] * 5))) == history
            wait_until(lambda: heard.words()["finished, async"], "all have heard of it")
            told = ("status", "attempts", "errors", "error", "history")
            assert heard.of("finished", *told) == [("FAILED", 5, 5, "Retry", history)] * 2

    def test_drain_sends_task_finished_too(self, heard: Heard) -> None:
        for task in KINDS:
            task.enqueue(*[{"retry": 0}] * 5)
        drain()
        assert heard.of("finished", "status", "attempts", "error") == [("FAILED", 5, "Retry")] * 6

    @pytest.mark.slow
    def test_a_retried_or_deferred_task_sends_no_task_finished(self, consume: Consume, heard: Heard) -> None:
        consume()
        for task in KINDS:
            ended(task.enqueue({"retry": 0}, {"defer": 0}))
        wait_until(lambda: len(heard.of("finished", "status")) == 6, "all have heard of it")
        assert heard.of("finished", "status", "attempts") == [("SUCCESSFUL", 3)] * 6

    def test_a_worker_that_stops_sends_task_finished_first(self, consume: Consume, diary: Diary, heard: Heard) -> None:
        consumer = consume(grace_seconds=30)
        result = jobs.wait_for_a_request.enqueue("defer")
        wait_until(diary.words, "it runs")
        control.cancel(result)
        consumer.stop()
        wait_until(lambda: heard.words() == ALL, "all have heard of it")
