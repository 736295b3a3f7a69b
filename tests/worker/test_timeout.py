"""Timeouts: what takes too long ends on time, is tried again as any error would be, and can do no harm afterwards."""

from __future__ import annotations

import dataclasses
import datetime as dt
import urllib.parse
from typing import TYPE_CHECKING, Any

import pytest
from django.db import connection

from django_pgqueue import functions
from django_pgqueue.compat import InvalidTask, TaskResultStatus, task_backends
from django_pgqueue.exceptions import TaskTimeout
from django_pgqueue.tasks import registry, task
from django_pgqueue.testing import drain
from django_pgqueue.worker.record import record
from django_pgqueue.worker.run import limits, shared_thread
from django_pgqueue.worker.run.clock import DatabaseClock
from django_pgqueue.worker.run.execution import Execution
from django_pgqueue.worker.run.progress import DirectReports
from django_pgqueue.worker.settings import MAX_RETIRING
from tests.support.address import conninfo
from tests.support.diary import MAX_WAIT_SECONDS
from tests.support.fixtures.consumers import another_transaction
from tests.support.pooler import Pooler
from tests.support.site import slow
from tests.support.site.receivers import listening
from tests.support.site.slow import TIMEOUT_SECONDS
from tests.support.waiting import wait_until
from tests.support.watching import ended, started, statuses

if TYPE_CHECKING:
    from django_pgqueue.compat import AnyTaskResult
    from tests.support.diary import Diary
    from tests.support.fixtures.consumers import Consume, Effects
    from tests.support.fixtures.workers import Session, Start


def seconds_of(result: AnyTaskResult) -> float:
    assert result.started_at is not None
    assert result.finished_at is not None
    return (result.finished_at - result.started_at).total_seconds()


def is_on_time(seconds: float) -> bool:
    """Not before its time, and before it would have ended by itself."""
    return TIMEOUT_SECONDS <= seconds < MAX_WAIT_SECONDS


def succeeded_at_last(result: AnyTaskResult) -> bool:
    """Its first attempt took too long, and so did perhaps others on a busy machine."""
    *before, last = statuses(ended(result))
    assert set(before) == {"retried"}
    assert {error.exception_class for error in result.errors} == {TaskTimeout}
    return last == "succeeded" and result.return_value == len(before) + 1


@pytest.mark.django_db
def test_a_timeout_that_a_deploy_adds_holds_for_messages_that_wait(monkeypatch: pytest.MonkeyPatch) -> None:
    patient = dataclasses.replace(slow.stay_async_at_first, timeout=None, max_attempts=1)
    monkeypatch.setattr(slow, "stay_async_at_first", patient)
    result = patient.enqueue()
    monkeypatch.setattr(slow, "stay_async_at_first", dataclasses.replace(patient, timeout=0.01, max_attempts=5))
    registry.forget()
    [done] = drain()
    monkeypatch.undo()
    registry.forget()
    assert done.id == result.id
    assert (done.status, done.errors[0].exception_class) == (TaskResultStatus.FAILED, TaskTimeout)


class TestAsync:
    def test_an_async_task_is_cancelled_and_its_process_stays(self, consume: Consume, diary: Diary) -> None:
        consumer = consume()
        result = ended(slow.stay_async.enqueue("x"))
        assert result.status is TaskResultStatus.FAILED
        assert result.errors[0].exception_class is TaskTimeout
        assert "slow.stay_async took longer than its timeout of 0.4 seconds" in result.errors[0].traceback
        assert is_on_time(seconds_of(result))
        assert diary.words() == ["x", "x, cancelled"]
        assert ended(slow.whoami.enqueue()).worker_ids == [consumer.id]

    def test_it_is_retried(self, consume: Consume) -> None:
        consume()
        result = ended(slow.stay_async_at_first.enqueue())
        assert succeeded_at_last(result)

    def test_a_timeout_of_the_task_s_own_is_another_error(self, consume: Consume) -> None:
        consume()
        for own in (slow.time_out_by_itself_async, slow.time_out_by_itself):
            assert ended(own.enqueue()).errors[0].exception_class is TimeoutError


class TestAsyncThatCannotBeCancelled:
    @pytest.fixture(autouse=True)
    def _little_time_to_clean_up(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr("django_pgqueue.worker.run.limits.MAX_LATE_SECONDS", 0.1)

    def test_a_task_that_swallows_its_cancellation_ends_on_time(self, consume: Consume, diary: Diary) -> None:
        consume(threads=3)
        other = slow.hold_async.enqueue("y")
        started(diary, "y")
        result = ended(slow.swallow.enqueue("x"))
        assert result.errors[0].exception_class is TaskTimeout
        assert is_on_time(seconds_of(result))
        assert "x, late" not in diary.words()
        assert ended(slow.whoami_async.enqueue()).status is TaskResultStatus.SUCCESSFUL
        for word in ("x-1", "y-1"):
            diary.allow(word)
        wait_until(lambda: "x, late" in diary.words(), "it goes on")
        assert statuses(ended(other)) == ["succeeded"], "so does its loop"
        result.refresh()
        assert statuses(result) == ["failed"]

    def test_a_task_that_blocks_its_event_loop_ends_on_time(self, consume: Consume, diary: Diary) -> None:
        consume(grace_seconds=600)
        other = slow.hold_async.enqueue("y")
        started(diary, "y")
        result = slow.block.enqueue("x")
        assert succeeded_at_last(result), "in another loop"
        assert result.errors[0].exception_class is TaskTimeout
        for word in ("x-1", "y-1"):
            diary.allow(word)
        assert statuses(ended(other)) == ["succeeded"], "its loop comes round again"

    def test_a_neighbour_in_a_blocked_loop_runs_elsewhere_and_uses_no_attempt(
        self, consume: Consume, diary: Diary
    ) -> None:
        consume(grace_seconds=0.2)
        other = slow.hold_async.enqueue("y")  # it has one attempt
        started(diary, "y")
        assert succeeded_at_last(slow.block.enqueue("x"))
        diary.allow("y-2")
        assert ended(other).status is TaskResultStatus.SUCCESSFUL
        assert statuses(other) == ["deferred", "succeeded"]
        diary.allow("y-1")
        diary.allow("x-1")
        wait_until(lambda: "x, late" in diary.words(), "the loop comes round again")
        assert statuses(other) == ["deferred", "succeeded"]

    def test_its_process_is_replaced(self, start: Start, diary: Diary) -> None:
        other = slow.hold_async.enqueue("y")
        worker = start("--threads", "2", "--grace-seconds", "0.5")
        started(diary, "y")
        [first] = worker.children
        result = slow.block.enqueue("x")
        diary.allow("y-2")
        assert statuses(ended(result)) == ["retried", "succeeded"]
        worker.says("retiring worker=", f"gave up id={other.id}")
        assert ended(other).return_value != first
        wait_until(lambda: first not in worker.children, "it leaves, though its loop is blocked")
        assert worker.stop() == 0


class TestSharedThread:
    """The database work of all async tasks is done in one thread, which nobody can stop."""

    def test_the_wait_for_the_calls_of_others_is_no_time_of_the_task(self, consume: Consume, diary: Diary) -> None:
        consumer = consume(threads=3)
        other = slow.hold_shared_thread.enqueue("x")
        started(diary, "x")
        result = slow.use_shared_thread.enqueue()
        wait_until(
            lambda: any(one.waited() > 1.1 for one in list(consumer.slots.limits._timed)), "it waits beyond its timeout"
        )
        diary.allow("x-1")
        assert statuses(ended(result)) == ["succeeded"]
        assert statuses(ended(other)) == ["succeeded"]
        assert not consumer.upkeep.recycling.is_stuck

    def test_a_call_that_goes_on_after_its_attempt_keeps_nobody_waiting(
        self, consume: Consume, diary: Diary, effects: Effects, session: Session, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr("django_pgqueue.worker.run.shared_thread.STUCK_SECONDS", 0.1)
        session.rows("insert into feature_effect (word) values ('free')")
        consumer = consume(threads=3)
        result = slow.lock_in_shared_thread.enqueue("x")
        assert succeeded_at_last(result), "in another thread, and the lock has gone with the session"
        assert consumer.upkeep.recycling.is_stuck, "its process is replaced"
        diary.allow("x-1")
        wait_until(lambda: "x, late" in diary.words(), "the call goes on")
        wait_until(lambda: not effects.writers(), "it commits nothing")
        assert statuses(ended(slow.use_shared_thread.enqueue())) == ["succeeded"]
        assert succeeded_at_last(result)


class TestThreads:
    def test_the_attempt_ends_on_time_though_the_thread_goes_on(self, consume: Consume, diary: Diary) -> None:
        consume()
        result = ended(slow.stay.enqueue("x"))
        assert result.status is TaskResultStatus.FAILED
        assert result.errors[0].exception_class is TaskTimeout
        assert "slow.stay took longer than its timeout of 0.4 seconds" in result.errors[0].traceback
        assert is_on_time(seconds_of(result))
        assert diary.words() == ["x"]
        diary.allow("x-1")
        wait_until(lambda: "x, late" in diary.words(), "the thread ends")

    def test_it_is_retried_and_the_late_outcome_is_dropped(self, consume: Consume, diary: Diary) -> None:
        consume(threads=1)
        result = slow.stay_at_first.enqueue("x")
        assert succeeded_at_last(result)
        diary.allow("x-1")
        wait_until(lambda: "x, late" in diary.words(), "the thread ends")
        result.refresh()
        assert succeeded_at_last(result)

    def test_late_writes_of_an_atomic_task_are_rolled_back(
        self, consume: Consume, diary: Diary, effects: Effects
    ) -> None:
        consume()
        result = slow.write_late.enqueue("x")
        started(diary, "x")
        assert len(effects.writers()) == 1
        consume()
        started(diary, "x", attempt=2)
        wait_until(lambda: len(effects.writers()) == 1, "the first transaction has ended with its time")
        diary.allow("x-1")
        wait_until(lambda: "x, late" in diary.words(), "the thread has tried to commit")
        assert effects() == []
        diary.allow("x-2")
        assert ended(result).return_value == 2
        assert effects() == ["x, attempt 2", "x, early 2"]
        assert statuses(result) == ["retried", "succeeded"]

    def test_the_time_counts_from_the_start_of_the_job(self, consume: Consume) -> None:
        results = [slow.take_most_of_it.enqueue(f"{n}") for n in range(3)]
        consume(threads=1)
        assert [ended(result).return_value for result in results] == ["0", "1", "2"]


class TestSessions:
    """What goes on after its time keeps nobody waiting in the database."""

    @pytest.mark.parametrize("where", ["PostgreSQL", "Python"])
    def test_the_locks_of_an_attempt_end_with_its_time(
        self, consume: Consume, effects: Effects, session: Session, where: str
    ) -> None:
        session.rows("insert into feature_effect (word) values ('free')")
        consume()
        result = slow.lock_and_sleep.enqueue(where)
        assert succeeded_at_last(result), "the second one does the same"
        assert effects.writers() == []

    def test_the_query_of_an_async_task_is_cancelled_and_its_process_stays(
        self, consume: Consume, effects: Effects, session: Session, diary: Diary
    ) -> None:
        """asgiref waits for the thread, whoever is cancelled, and all async tasks share that thread."""
        session.rows("insert into feature_effect (word) values ('free')")
        consumer = consume(threads=3)
        neighbour = slow.lock_async_later.enqueue("y")
        started(diary, "y")
        with another_transaction() as other:
            other.execute("update feature_effect set word = 'theirs'")
            result = slow.lock_async.using(max_attempts=1).enqueue()
            waits = "select 1 from pg_locks where not granted"
            wait_until(lambda: session.rows(waits) or statuses(result), "it waits for the lock, before its neighbour")
            diary.allow("y-1")
            assert ended(result).errors[0].exception_class is TaskTimeout
            assert is_on_time(seconds_of(result))
        assert statuses(ended(neighbour)) == ["succeeded"]
        assert statuses(ended(slow.lock_async.enqueue())) == ["succeeded"]
        assert not consumer.upkeep.recycling.is_stuck
        assert effects() == ["locked"]

    @pytest.mark.parametrize("which", ["connects first", "looks later"])
    def test_no_query_goes_on_behind_the_end_of_its_async_task(
        self, consume: Consume, effects: Effects, session: Session, monkeypatch: pytest.MonkeyPatch, which: str
    ) -> None:
        """Whether the worker has opened its session, or its event loop is the first that notices the time."""
        monkeypatch.setattr(shared_thread, "STUCK_SECONDS", MAX_WAIT_SECONDS)
        if which == "looks later":
            monkeypatch.setattr(limits, "timeout_seconds", lambda _: MAX_WAIT_SECONDS)
        session.rows("insert into feature_effect (word) values ('free')")
        consumer = consume(threads=1)
        if which == "connects first":
            consumer.slots.connect_first.turn_on()
        with another_transaction() as other:
            other.execute("update feature_effect set word = 'theirs'")
            result = ended(slow.lock_async.using(max_attempts=1).enqueue())
            assert result.errors[0].exception_class is TaskTimeout
            waits = "select 1 from pg_locks where not granted"
            wait_until(lambda: not session.rows(waits), "its statement is cancelled")
        assert not consumer.upkeep.recycling.is_stuck
        assert effects() == ["free"]

    @pytest.mark.usefixtures("effects")
    def test_the_sessions_of_others_go_on(self, consume: Consume, diary: Diary) -> None:
        consume(threads=3)
        others = [slow.sleep_in_a_transaction.enqueue(word) for word in ("a", "b")]
        for word in ("a", "b"):
            started(diary, word)
        ended(slow.lock_and_sleep.using(max_attempts=1).enqueue("PostgreSQL"))
        for word in ("a", "b"):
            diary.allow(f"{word}-1")
        pids = {pid for result in others for pid in ended(result).return_value}
        assert len(pids) == 2

    @pytest.mark.usefixtures("effects")
    def test_a_timed_out_attempt_cannot_reconnect(self, consume: Consume, diary: Diary) -> None:
        consume()
        assert ended(slow.never_give_up.enqueue()).errors[0].exception_class is TaskTimeout
        wait_until(lambda: len(diary.words()) == 2, "the thread has tried")
        assert diary.words()[0] == "OperationalError"
        assert "the task cannot connect to the database again" in diary.words()[1]

    def test_a_pooler_passes_the_cancel_on(
        self, start: Start, environment: dict[str, str], effects: Effects, session: Session
    ) -> None:
        """The process ids that the worker knows are the pooler's: only libpq's cancel finds the session."""
        session.rows("insert into feature_effect (word) values ('free')")
        with Pooler(conninfo(), sessions=8) as pooler:
            url = urllib.parse.urlsplit(environment["DATABASE_URL"])
            through = url._replace(netloc=f"{url.netloc.rpartition(':')[0]}:{pooler.port}").geturl()
            worker = start("--threads", "2", options={"LISTEN": False}, DATABASE_URL=through)
            result = slow.lock_and_sleep.enqueue("PostgreSQL")
            assert succeeded_at_last(result)
            assert f"cut id={result.id}" in worker.output
            assert worker.stop() == 0
        assert effects.writers() == []

    def test_receivers_get_one_end(self, consume: Consume, effects: Effects) -> None:
        heard: list[str] = []

        def hear(task_result: AnyTaskResult, **_: Any) -> None:
            heard.extend(error.exception_class_path for error in task_result.errors)

        with listening("finished", hear):
            consumer = consume(threads=1)
            ended(slow.whoami.enqueue())
            [slot] = consumer.slots.threads._all
            late = slot.thread
            result = slow.lock_and_sleep.using(max_attempts=1).enqueue("PostgreSQL")
            assert ended(result).status is TaskResultStatus.FAILED
            wait_until(lambda: not effects.writers(), "the late thread has noticed")
            wait_until(lambda: not late.is_alive(), "it has ended")
        assert heard == ["django_pgqueue.exceptions.TaskTimeout"]


class TestBesideTheAttempt:
    """What a project calls when the time is up may not return either: a backoff, a receiver."""

    @pytest.fixture(autouse=True)
    def _little_patience(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr("django_pgqueue.worker.run.aside.MAX_ASIDE_SECONDS", 0.2)

    def test_a_backoff_that_does_not_return_holds_no_message(self, consume: Consume, diary: Diary) -> None:
        consumer = consume()
        result = slow.stay_and_wait_for_another_try.enqueue("x")
        wait_until(lambda: statuses(result) == ["retried"], "its attempt has ended")
        wait_until(lambda: not consumer.slots.aside.are_busy(), "the process waits for nothing, and can be replaced")
        result.refresh()
        assert result.errors[0].exception_class is TaskTimeout
        assert "took longer than its timeout of 0.4 seconds" in result.errors[0].traceback
        assert "backoff, or a receiver of its signals, has not returned for 0.2 seconds" in result.errors[0].traceback
        diary.allow("again")
        diary.allow("x-1")
        wait_until(lambda: "x, late" in diary.words(), "the task goes on")
        assert statuses(result) == ["retried"], "and who comes late ends nothing"

    @pytest.mark.parametrize("task", [slow.stay, slow.swallow], ids=["thread", "async"])
    def test_a_receiver_that_does_not_return_holds_no_message(
        self, consume: Consume, diary: Diary, monkeypatch: pytest.MonkeyPatch, task: Any
    ) -> None:
        monkeypatch.setattr("django_pgqueue.worker.run.limits.MAX_LATE_SECONDS", 0.1)

        def hear(**_: Any) -> None:
            diary.write("heard")
            diary.wait_for("heard")

        with listening("finished", hear):
            consumer = consume()
            result = ended(task.enqueue("x"))
            assert result.errors[0].exception_class is TaskTimeout
            wait_until(
                lambda: not consumer.slots.aside.are_busy(), "the process waits for nothing, and can be replaced"
            )
            diary.allow("heard")
            diary.allow("x-1")
        assert diary.words().count("heard") == 1
        assert statuses(result) == ["failed"]


class TestBeforeItBegan:
    """The time may be up before the task's first line: the machine was busy, or a receiver of its signal took long."""

    @pytest.mark.django_db(transaction=True)
    @pytest.mark.parametrize(("max_attempts", "end"), [(None, "failed"), (1, "failed"), (2, "retried")])
    def test_a_timeout_before_the_begin_is_ordinary(self, diary: Diary, max_attempts: int | None, end: str) -> None:
        heard: list[str] = []

        def hear(task_result: AnyTaskResult, **_: Any) -> None:
            heard.append(str(task_result.status))

        result = slow.stay.using(max_attempts=max_attempts).enqueue("x")
        [message] = functions.message_dequeue(connection, worker="w", tasks=True)
        backend: Any = task_backends["default"]
        execution = Execution(message, backend=backend, clock=DatabaseClock(), reports=DirectReports(connection))
        with listening("finished", hear):
            record(connection, [execution.timed_out()], worker="w")
        result.refresh()
        assert statuses(result) == [end]
        assert result.errors[0].exception_class is TaskTimeout
        assert heard == (["FAILED"] if end == "failed" else [])
        execution.run()
        assert diary.words() == [], "what has ended does not begin"

    def test_a_task_that_a_receiver_delayed_too_long_does_not_begin(self, consume: Consume, diary: Diary) -> None:
        def hold_up(task_result: AnyTaskResult, **_: Any) -> None:
            if task_result.attempts == 1:
                wait_until(lambda: statuses(task_result)[:1] == ["retried"], "its time is up")

        with listening("started", hold_up):
            result = slow.stay_at_first.enqueue("x")
            consume()
            wait_until(lambda: statuses(result)[:1] == ["retried"], "its time is up")
            consume()
            assert succeeded_at_last(result)
        assert diary.words() == []


class TestReplacement:
    def test_a_fresh_process_takes_over_at_once(self, start: Start, diary: Diary) -> None:
        before = slow.whoami.enqueue()
        worker = start("--threads", "1")
        assert ended(before).return_value in worker.children
        result, behind = slow.stay_at_first.enqueue("x"), slow.whoami.enqueue()
        assert ended(result).return_value == 2
        worker.says("started worker=", times=2)
        worker.says(f"retiring worker={before.worker_ids[0]}", f"the task of message {result.id} went on")
        assert "crashed" not in worker.output
        fresh = ended(behind).return_value
        assert fresh != before.return_value
        assert worker.children == [fresh]
        assert "x, late" not in diary.words()
        assert worker.stop() == 0

    def test_messages_claimed_ahead_run_in_the_fresh_process_as_first_attempts(self, start: Start) -> None:
        for _ in range(30):  # so short that the worker claims many at a time
            slow.whoami.enqueue()
        slow.stay.enqueue("x")
        behind = [slow.whoami.enqueue() for _ in range(30)]
        start("--threads", "1", "--lock-seconds", "600", "-v", "0", ready=False)
        assert {(ended(result).attempts, *statuses(result)) for result in behind} == {(1, "succeeded")}
        assert len({result.return_value for result in behind}) == 1

    def test_a_retiring_process_that_gets_a_stop_signal_has_the_usual_grace(self, start: Start, diary: Diary) -> None:
        slow.stay.enqueue("x")
        other = slow.hold.enqueue("y")
        worker = start("--threads", "2", "--grace-seconds", "0.5", "--lock-seconds", "600")
        started(diary, "y")
        worker.says("started worker=", times=2)
        assert worker.stop() == 1
        assert f"abandoned id={other.id}" in worker.output
        assert worker.output.count("stopped worker=") == 2

    def test_a_long_job_beside_tasks_that_time_out_is_run_once(self, start: Start, diary: Diary) -> None:
        """More of them than processes may retire: the last one goes on with another thread."""
        long = slow.hold.using(max_attempts=1).enqueue("y")
        worker = start("--threads", "2", "--grace-seconds", "0.1")
        started(diary, "y")
        others = []
        for number in range(2 + MAX_RETIRING):
            if 0 < number <= MAX_RETIRING:  # each process has something to end
                others.append(slow.hold.enqueue(f"{number}"))
                started(diary, f"{number}")
            assert ended(slow.stay.enqueue(f"x{number}")).errors[0].exception_class is TaskTimeout
            worker.says("retiring worker=", times=min(number + 1, MAX_RETIRING))
        worker.says("not replaced pid=", f"{MAX_RETIRING} earlier processes still have jobs to end")
        assert len(worker.children) == 1 + MAX_RETIRING
        last = ended(slow.whoami.enqueue()).return_value
        assert (last, ended(slow.stay.enqueue("z")).status) == (worker.children[-1], TaskResultStatus.FAILED)
        assert ended(slow.whoami.enqueue()).return_value == last, "its slots are threads that run"
        diary.allow("y-1")
        assert (ended(long).status, long.attempts) == (TaskResultStatus.SUCCESSFUL, 1)
        worker.says("retiring worker=", times=1 + MAX_RETIRING)
        assert ended(slow.whoami.enqueue()).return_value != last
        for number in range(1, 1 + MAX_RETIRING):
            diary.allow(f"{number}-1")
        assert [statuses(ended(other)) for other in others] == [["succeeded"]] * MAX_RETIRING
        assert worker.stop() == 0

    def test_a_burst_goes_on(self, start: Start) -> None:
        result, behind = slow.stay_at_first.enqueue("x"), slow.whoami.enqueue()
        assert start("--burst", "--threads", "1", ready=False).ends() == 0
        assert [statuses(job) for job in (result, behind)] == [["retried", "succeeded"], ["succeeded"]]

    def test_a_burst_with_a_supervisor_runs_jobs_that_a_retiring_process_leaves(
        self, start: Start, diary: Diary
    ) -> None:
        result = slow.stay_and_wait_for_another_try.enqueue("x")
        worker = start("--burst", "--threads", "1", "--health-port", "0", ready=False)
        worker.says("stopped worker=")  # the second process, which has found nothing
        diary.allow("again")
        assert worker.ends() == 0
        assert statuses(result) == ["retried", "succeeded"]


@pytest.mark.parametrize("wrong", [0, -1, True, "5", float("inf"), float("nan"), dt.timedelta(0), [5]])
def test_a_wrong_timeout_is_named(wrong: Any) -> None:
    with pytest.raises(InvalidTask) as caught:
        task(timeout=wrong)(slow.whoami.func)
    assert "timeout must be a number of seconds above 0, a timedelta, or None" in str(caught.value)
    assert repr(wrong) in str(caught.value)
