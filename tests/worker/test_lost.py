"""Workers that die, stand still or are late: others take over, and nothing counts twice."""

from __future__ import annotations

import signal
import threading
from typing import TYPE_CHECKING

import pytest

from django_pgqueue.consumer.session import Session as WorkerSession
from django_pgqueue.models import Attempt, Message
from django_pgqueue.worker.claim.held import Heartbeats
from tests.support.site import jobs
from tests.support.site.tasks import hold, hold_on, write
from tests.support.waiting import wait_until
from tests.support.watching import ended, holder, started, statuses

if TYPE_CHECKING:
    from django_pgqueue.worker.process import WorkerProcess
    from tests.support.diary import Diary
    from tests.support.fixtures.consumers import Consume
    from tests.support.fixtures.workers import Session, Start

SHORT_LOCK = ("--lock-seconds", "1")


def test_a_killed_workers_job_is_run_again_by_another(start: Start, diary: Diary) -> None:
    result = hold.enqueue("x")
    killed = start(*SHORT_LOCK)
    started(diary, "x")
    killed.kill()
    start(*SHORT_LOCK)
    started(diary, "x", attempt=2)
    result.refresh()
    assert [error.exception_class_path for error in result.errors] == ["django_pgqueue.exceptions.AttemptLost"]
    assert not result.is_finished

    diary.allow("x-2")
    assert ended(result).return_value == {"attempt": 2}
    assert statuses(result) == ["lost", "succeeded"]
    assert result.attempts == len(set(result.worker_ids)) == 2
    lost = Attempt.objects.get(status="lost")
    assert not lost.final
    assert str(lost.worker) in result.errors[0].traceback


def test_a_worker_suspended_beyond_its_lock_cannot_complete(start: Start, diary: Diary) -> None:
    result = hold.enqueue("x")
    late = start(*SHORT_LOCK)
    started(diary, "x")
    late.send_to_group(signal.SIGSTOP)
    start(*SHORT_LOCK)
    started(diary, "x", attempt=2)
    new_holder = holder(result)

    diary.allow("x-1")
    late.send_to_group(signal.SIGCONT)
    late.says(f"lost id={result.id} attempt=1", "no outcome is recorded")
    assert statuses(result) == ["lost"]
    assert holder(result) == new_holder

    diary.allow("x-2")
    assert ended(result).return_value == {"attempt": 2}
    assert statuses(result) == ["lost", "succeeded"]
    assert late.stop() == 0


@pytest.mark.slow
def test_a_job_that_takes_longer_than_its_lock_runs_once(consume: Consume, diary: Diary, session: Session) -> None:
    results = [hold.enqueue("thread"), hold_on.enqueue("coroutine")]
    consume(lock_seconds=1)
    started(diary, "thread")
    started(diary, "coroutine")
    consume(lock_seconds=1)  # would take them
    wait_until(
        lambda: session.value("select bool_and(now() > locked_at + interval '2.5 seconds') from pgqueue_message"),
        "they have run for longer than two locks",
    )
    diary.allow("thread-1")
    diary.allow("coroutine-1")
    for result in results:
        assert ended(result).return_value == {"attempt": 1}
        assert statuses(result) == ["succeeded"]


@pytest.mark.slow
def test_a_worker_that_takes_over_its_own_lost_job_keeps_hold_of_it(
    consume: Consume, diary: Diary, session: Session, caplog: pytest.LogCaptureFixture
) -> None:
    """The end of the lost attempt must not be taken for the end of the new one."""
    result = hold.enqueue("x")
    consume(lock_seconds=1)
    started(diary, "x")
    with session.connection.transaction():
        session.rows("update pgqueue_message set unlock_at = 0")
        session.rows("select pgqueue_message_expire()")
    started(diary, "x", attempt=2)

    diary.allow("x-1")
    wait_until(lambda: "no outcome is recorded" in caplog.text, "the lost attempt has ended")
    consume(lock_seconds=1)  # would take it if nobody lengthened the lock
    wait_until(
        lambda: session.value("select now() > locked_at + interval '2.5 seconds' from pgqueue_message"),
        "the new attempt has run for longer than two locks",
    )
    diary.allow("x-2")
    assert ended(result).return_value == {"attempt": 2}
    assert statuses(result) == ["lost", "succeeded"]


def test_a_job_that_has_completed_itself_is_not_called_lost(
    consume: Consume, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Its worker takes note of the end later, when the connection is back."""
    worker = consume(threads=1)
    monkeypatch.setattr(worker, "_collect", lambda: None)
    result = ended(jobs.follow_atomically.enqueue())
    wait_until(lambda: worker.slots.done, "the slot has ended it")
    beat_twice(worker)
    assert f"lost id={result.id}" not in caplog.text
    monkeypatch.undo()
    wait_until(lambda: not len(worker.held), "it has taken note")


def test_a_job_whose_transaction_is_committed_is_not_called_lost(
    consume: Consume, diary: Diary, caplog: pytest.LogCaptureFixture
) -> None:
    """Its on_commit() callbacks take longer than its lock."""
    worker = consume(threads=1)
    result = jobs.hold_after_the_commit.enqueue("x")
    wait_until(lambda: "x" in diary.words(), "it is committed")
    beat_twice(worker)
    assert f"lost id={result.id}" not in caplog.text
    diary.allow("x")
    wait_until(lambda: not len(worker.held), "it has taken note")


def beat_twice(worker: WorkerProcess) -> None:
    """A heartbeat calls a message lost that it did not find the second time."""
    [held] = worker.held
    held.locked -= worker.settings.lock_seconds / 2
    session = WorkerSession("default", consumer=worker.id, pooled=True)
    with session.open():
        heartbeats = Heartbeats(worker.settings, worker.held)
        for _ in range(2):
            heartbeats.do(lambda: session)


def test_two_workers_never_hold_one_attempt(start: Start, session: Session) -> None:
    """Locks of all lengths run out while two workers, which stand still now and then, fight for few messages."""
    results = [write.using(max_attempts=1000).enqueue(f"{n}") for n in range(300)]
    workers = [start("--lock-seconds", "0.05", "--threads", "2", "-v", "0", ready=False) for _ in range(2)]
    enough = threading.Event()

    def disturb() -> None:
        number = 0
        while not enough.wait(0.08):
            number += 1
            worker = workers[number % 2]
            for pid in worker.children:
                worker.send_to(pid, signal.SIGSTOP)
            enough.wait(0.08)
            worker.send_to_group(signal.SIGCONT)

    disturber = threading.Thread(target=disturb)
    disturber.start()
    try:
        wait_until(lambda: not Message.objects.exists(), "the queue is empty", 60)
    finally:
        enough.set()
        disturber.join()
    assert {result.status for result in map(ended, results)} == {"SUCCESSFUL"}
    assert Attempt.objects.filter(status="succeeded").count() == 300
    twice = session.rows("select from pgqueue_attempt group by message_id, attempt having count(*) > 1")
    assert twice == []


def test_a_claim_undone_by_a_server_crash_is_renewed_and_its_job_runs_once(
    consume: Consume, diary: Diary, session: Session
) -> None:
    """Claims do not wait for the disk.  The same worker gives the same attempt the same token."""
    result = hold.enqueue("x")
    consume(threads=3)
    started(diary, "x")
    worker = holder(result)
    session.rows("""
        update pgqueue_message set unlock_at = null, locked_at = null, worker = null, attempt = attempt - 1
    """)
    wait_until(lambda: holder(result) == worker, "it has claimed the message again")
    assert ended(write.enqueue("after")).return_value == "after"
    assert len(diary.entries("x")) == 1

    diary.allow("x-1")
    assert ended(result).return_value == {"attempt": 1}
    assert statuses(result) == ["succeeded"]
