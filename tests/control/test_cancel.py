"""Jobs are cancelled: those that wait at once, those that run when they look."""

from __future__ import annotations

import datetime as dt
import time
from typing import TYPE_CHECKING, Any

import pytest
from django.contrib.auth.models import Group
from django.db import connection, transaction

from django_pgqueue import functions
from django_pgqueue.compat import task_backends
from django_pgqueue.consumer.wakeup import Wakeup
from django_pgqueue.control import cancel, run_from_step
from django_pgqueue.exceptions import InvalidMessage
from django_pgqueue.models import Attempt
from django_pgqueue.queue import Queue
from django_pgqueue.testing import drain
from django_pgqueue.worker.record import record
from django_pgqueue.worker.run.clock import DatabaseClock
from django_pgqueue.worker.run.outcome import Cancelled, Succeeded
from django_pgqueue.worker.run.slots import Slots
from tests.support.fixtures.backend import no_queries
from tests.support.fixtures.consumers import close_event_loop
from tests.support.site import jobs
from tests.support.waiting import wait_until
from tests.support.watching import ended, statuses

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.support.diary import Diary
    from tests.support.fixtures.consumers import Consume, Effects
    from tests.support.fixtures.workers import Session

pytestmark = pytest.mark.django_db

CANCELLED = "django_pgqueue.exceptions.TaskCancelled"


def running(diary: Diary, attempt: int = 1) -> None:
    wait_until(
        lambda: any(entry.get("attempt", attempt) == attempt for entry in diary.entries("runs")),
        f"attempt {attempt} runs",
    )


@pytest.mark.parametrize("wrong", [None, 1.5, [17], Attempt(id=17), Group(id=17)], ids=repr)
def test_what_is_no_job_is_refused(wrong: Any) -> None:
    for refuse in (lambda: cancel(wrong), lambda: run_from_step(wrong, "charge")):
        with pytest.raises(InvalidMessage, match="is neither the result of an enqueued job nor its id"):
            refuse()


class TestWaiting:
    def test_a_cancelled_message_moves_to_the_history(self) -> None:
        result = jobs.follow.enqueue()
        assert cancel(result) == "cancelled"
        assert drain() == []
        [attempt] = Attempt.objects.filter(message_id=result.id)
        assert (attempt.status, attempt.final, attempt.attempt, attempt.worker) == ("cancelled", True, 0, None)
        assert attempt.content == {"args": [], "kwargs": {}}

    def test_a_cancelled_result_has_failed_without_an_attempt(self) -> None:
        result = jobs.follow.enqueue()
        cancel(result)
        result.refresh()
        assert (result.status, result.is_finished, result.attempts) == ("FAILED", True, 0)
        assert (result.errors, result.started_at, result.worker_ids) == ([], None, [])
        assert result.finished_at is not None
        with pytest.raises(ValueError, match="Task failed"):
            _ = result.return_value

    def test_a_job_that_is_claimed_and_put_back_meanwhile_is_cancelled(self, monkeypatch: pytest.MonkeyPatch) -> None:
        result = jobs.follow.enqueue()
        rounds = iter(range(3))

        def claimed_first(connection: Any, ids: list[int]) -> set[int]:
            if next(rounds, None) is not None:
                with connection.cursor() as cursor:
                    cursor.execute("select from pgqueue_message_dequeue(p_tasks => true, p_worker => 'w')")
            return message_cancel(connection, ids)

        def put_back_first(connection: Any, ids: list[int]) -> set[int]:
            with connection.cursor() as cursor:
                cursor.execute("select pgqueue_message_defer(id, attempt, 'w') from pgqueue_message")
            return message_request_cancel(connection, ids)

        message_cancel, message_request_cancel = functions.message_cancel, functions.message_request_cancel
        monkeypatch.setattr(functions, "message_cancel", claimed_first)
        monkeypatch.setattr(functions, "message_request_cancel", put_back_first)
        assert cancel(result) == "cancelled"
        assert statuses(result) == ["deferred", "deferred", "deferred", "cancelled"]

    @pytest.mark.parametrize("of", [lambda r: r, lambda r: r.id, lambda r: int(r.id)], ids=["result", "id", "number"])
    def test_cancel_takes_a_result_or_its_id(self, of: Any) -> None:
        assert cancel(of(jobs.follow.enqueue())) == "cancelled"

    def test_scheduled_and_retried_messages_can_be_cancelled(self) -> None:
        scheduled = jobs.follow.using(run_after=dt.timedelta(days=1)).enqueue()
        retried = jobs.follow.using(max_attempts=3).enqueue({"raise": "OSError"})
        deferred = jobs.follow.enqueue({"defer": 3600})
        drain(limit=2)
        assert [cancel(result) for result in (scheduled, retried, deferred)] == ["cancelled"] * 3
        retried.refresh()
        assert (retried.status, len(retried.errors), retried.attempts) == ("FAILED", 1, 1)
        assert [statuses(result)[-1] for result in (scheduled, retried, deferred)] == ["cancelled"] * 3

    def test_a_raw_message_can_be_cancelled_by_its_id(self) -> None:
        queue = Queue("warehouse")
        waits, runs = queue.send("tea"), queue.send("coffee")
        assert cancel(waits) == "cancelled"
        message = queue.receive()
        assert message
        assert message.id == runs
        assert cancel(runs) == "requested"
        message.defer()
        assert queue.receive() is None

    def test_cancel_is_part_of_the_transaction(self) -> None:
        result = jobs.follow.enqueue()
        with transaction.atomic():
            assert cancel(result) == "cancelled"
            transaction.set_rollback(True)
        assert [done.id for done in drain()] == [result.id]


class TestNothingToCancel:
    def test_an_ended_message_stays_as_it_ended(self) -> None:
        good, bad = jobs.follow.enqueue(), jobs.follow.enqueue({"raise": "OSError"})
        drain()
        assert [cancel(result) for result in (good, bad)] == [None, None]
        assert (statuses(good), statuses(bad)) == (["succeeded"], ["failed"])
        cancelled = jobs.follow.enqueue()
        assert [cancel(cancelled), cancel(cancelled)] == ["cancelled", None]

    def test_an_id_that_never_existed(self) -> None:
        assert cancel(2**62) is None

    @pytest.mark.parametrize("result_id", ["", "seven", "1.5", -1, 2**63, "9" * 5000, "7\x00", "\u0667", True])
    def test_a_malformed_id_sends_no_query(self, result_id: Any) -> None:
        with no_queries():
            assert cancel(result_id) is None


@pytest.fixture
def slots(transactional_db: None, diary: Diary) -> Iterator[Slots]:
    """A worker's slots, one for plain and one for async tasks, without the worker."""
    backend: Any = task_backends["default"]
    wakeup = Wakeup()
    slots = Slots(1, backend=backend, clock=DatabaseClock(), wakeup=wakeup, on_end=lambda _: None, idle_seconds=0.5)
    yield slots
    slots.stop()
    close_event_loop(slots)
    wakeup.close()


class TestBetween:
    @pytest.mark.django_db(transaction=True)
    def test_a_message_that_is_deferred_meanwhile_is_cancelled(self, session: Session) -> None:
        """It runs when the waiting ones are looked at, and waits when the running ones are."""
        result = jobs.follow.enqueue()
        [held] = functions.message_dequeue(connection, worker="w1", tasks=True)

        def defer_first(execute: Any, sql: str, *rest: Any) -> Any:
            if "request_cancel" in sql:
                functions.message_defer(session.connection, held)
            return execute(sql, *rest)

        with connection.execute_wrapper(defer_first):
            assert cancel(result) == "cancelled"
        assert statuses(result) == ["deferred", "cancelled"]

    @pytest.mark.parametrize("job", [jobs.hold_the_key, jobs.wait_until_allowed], ids=["plain", "async"])
    def test_a_claimed_message_that_has_not_begun_does_not_begin(self, slots: Slots, diary: Diary, job: Any) -> None:
        results = [job.using(unique_key=word).enqueue(word) for word in ("a", "b")]
        slots.submit(functions.message_dequeue(connection, limit=2, worker="w1", tasks=True))
        wait_until(diary.words, "the first one runs")
        slots.cancel({int(results[1].id)})
        diary.allow("a")
        diary.allow("b")
        wait_until(lambda: len(slots.done) == 2, "both have ended")
        ends = slots.take_done()
        assert [type(end.outcome) for end in ends] == [Succeeded, Cancelled]
        assert diary.words() == ["a"]
        record(connection, ends, worker="w1")
        assert [statuses(result) for result in results] == [["succeeded"], ["cancelled"]]

    def test_a_cancelled_coroutine_always_reports_its_end(self, slots: Slots) -> None:
        """A coroutine that is cancelled before its first step never takes it."""
        for number in range(1, 41):
            jobs.wait_for_ever.enqueue(f"{number}")
            held = functions.message_dequeue(connection, worker="w1", tasks=True)
            slots.submit(held)
            time.sleep(0.0001 * (number % 4))
            slots.cancel({held[0].id})
            wait_until(lambda: slots.done, f"number {number} has ended")
            [end] = slots.take_done()
            assert type(end.outcome) is Cancelled
            slots.reports.forget(held[0])


@pytest.mark.django_db(transaction=True)
class TestRunning:
    def test_a_task_sees_the_request_long_before_the_next_heartbeat(self, consume: Consume, diary: Diary) -> None:
        result = jobs.wait_for_a_request.enqueue()
        consume(lock_seconds=600)
        running(diary)
        assert cancel(result) == "requested"
        assert ended(result).status == "FAILED"
        assert statuses(result) == ["cancelled"]
        [error] = result.errors
        assert error.exception_class_path == CANCELLED
        assert "A user asked the task to stop." in error.traceback
        [attempt] = Attempt.objects.all()
        assert (attempt.final, attempt.attempt) == (True, 1)
        assert attempt.content is not None
        assert cancel(result) is None

    def test_an_async_task_is_cancelled_where_it_waits(self, consume: Consume, diary: Diary) -> None:
        result = jobs.wait_for_ever.using(max_attempts=5).enqueue()
        consume(lock_seconds=600)
        running(diary)
        assert cancel(result) == "requested"
        assert ended(result).status == "FAILED"
        assert "runs, cancelled" in diary.words()
        assert statuses(result) == ["cancelled"]
        assert result.errors[0].exception_class_path.endswith("CancelledError")

    def test_only_the_requested_task_is_cancelled(self, consume: Consume, diary: Diary) -> None:
        results = [jobs.wait_for_ever.enqueue("a"), jobs.wait_for_ever.enqueue("b")]
        consume()
        wait_until(lambda: sorted(diary.words()) == ["a", "b"], "both run")
        cancel(results[0])
        ended(results[0])
        assert [word for word in diary.words() if "cancelled" in word] == ["a, cancelled"]
        results[1].refresh()
        assert results[1].status == "RUNNING"
        cancel(results[1])
        ended(results[1])

    @pytest.mark.parametrize("job", [jobs.wait_for_a_request, jobs.will_not_be_cancelled], ids=["plain", "async"])
    def test_a_task_that_ignores_the_request_may_succeed(self, consume: Consume, diary: Diary, job: Any) -> None:
        result = job.enqueue(*(["go on"] if job is jobs.wait_for_a_request else []))
        consume()
        running(diary)
        cancel(result)
        assert ended(result).return_value == "done all the same"
        assert (result.status, statuses(result)) == ("SUCCESSFUL", ["succeeded"])

    @pytest.mark.parametrize("then", ["error", "defer", "retry"])
    def test_a_cancelled_message_gets_no_further_attempt(self, consume: Consume, diary: Diary, then: str) -> None:
        result = jobs.wait_for_a_request.using(max_attempts=5).enqueue(then)
        consume()
        running(diary)
        cancel(result)
        assert ended(result).status == "FAILED"
        assert statuses(result) == ["cancelled"]
        words = {"error": ["builtins.OSError"], "defer": [], "retry": ["django_pgqueue.exceptions.Retry"]}
        assert [error.exception_class_path for error in result.errors] == words[then]

    def test_an_atomic_task_is_rolled_back(self, consume: Consume, diary: Diary, effects: Effects) -> None:
        result = jobs.write_and_wait_for_a_request.enqueue("x")
        consume()
        running(diary)
        wait_until(effects.writers, "it has written")
        cancel(result)
        assert statuses(ended(result)) == ["cancelled"]
        assert effects() == []

    def test_a_message_that_is_lost_after_the_request_is_cancelled(
        self, consume: Consume, diary: Diary, session: Session
    ) -> None:
        result = jobs.wait_for_a_request.using(max_attempts=5).enqueue("go on")
        consume()
        running(diary)
        with session.connection.transaction():
            assert functions.message_request_cancel(session.connection, [int(result.id)])
            session.rows("update pgqueue_message set unlock_at = 0")
            session.rows("select pgqueue_message_expire()")
        assert statuses(ended(result)) == ["cancelled"]
        assert result.errors[0].exception_class_path == "django_pgqueue.exceptions.AttemptLost"

    def test_a_request_that_is_rolled_back_has_no_effect(self, consume: Consume, diary: Diary) -> None:
        result = jobs.wait_for_ever.enqueue()
        consume()
        running(diary)
        with transaction.atomic():
            assert cancel(result) == "requested"
            transaction.set_rollback(True)
        later = jobs.wait_for_ever.enqueue("later")
        wait_until(lambda: "later" in diary.words(), "another one runs")
        cancel(later)
        ended(later)
        assert "runs, cancelled" not in diary.words()
        cancel(result)
        ended(result)

    def test_a_cancellation_without_a_request_is_an_error(self, consume: Consume) -> None:
        result = jobs.cancels_itself.using(max_attempts=2).enqueue()
        consume()
        wait_until(lambda: statuses(result), "the first attempt has ended")
        assert statuses(result) == ["retried"]
        assert cancel(result) == "cancelled"

    def test_the_next_job_in_the_slot_does_not_see_the_request(self, consume: Consume, diary: Diary) -> None:
        result = jobs.wait_for_a_request.enqueue()
        consume(threads=1)
        running(diary)
        cancel(result)
        ended(result)
        assert ended(jobs.stop_without_being_asked.enqueue()).return_value is False


class TestInDrain:
    def test_a_task_sees_the_request(self) -> None:
        result = jobs.cancel_yourself.enqueue()
        drain()
        result.refresh()
        assert (result.status, statuses(result)) == ("FAILED", ["cancelled"])
        assert result.errors[0].exception_class_path == CANCELLED

    def test_no_request_is_seen_as_none(self) -> None:
        jobs.stop_without_being_asked.enqueue()
        assert drain()[0].return_value is False

    def test_an_async_task_sees_the_request(self) -> None:
        jobs.say_async.enqueue(0.5)
        assert [(result.status, result.return_value) for result in drain()] == [("SUCCESSFUL", False)]
