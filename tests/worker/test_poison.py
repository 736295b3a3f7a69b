"""A job that kills its worker harms itself alone."""

from __future__ import annotations

import signal
from typing import TYPE_CHECKING, Any

import pytest
from django.db import transaction

from django_pgqueue.models import Attempt, Message
from tests.support.site.tasks import die_by, die_in_the_loop, hold, hold_on, write
from tests.support.waiting import wait_until
from tests.support.watching import ended, started, statuses

if TYPE_CHECKING:
    from tests.support.diary import Diary
    from tests.support.fixtures.workers import Session, Start

MAX_LOST = 20
LOST = 17
"""So often a job was lost before the test begins, where its twenty deaths are not what the test is about."""


def lost_already(job: Any, times: int = LOST) -> None:
    Message.objects.filter(pk=int(job.id)).update(lost=times)


def attempts_of(result: Any) -> list[Attempt]:
    return list(Attempt.objects.filter(message_id=int(result.id)).order_by("id"))


def assert_it_failed_by_its_own_limit(poison: Any, before: int = 0) -> None:
    assert statuses(poison) == ["lost"] * (MAX_LOST - before - 1) + ["failed"]
    last = attempts_of(poison)[-1]
    assert last.error_class == "django_pgqueue.exceptions.AttemptLost"
    assert "(loss 20 of 20)" in str(last.error_message)


@pytest.mark.parametrize(
    ("how", "max_attempts", "before"),
    [
        ("exit", None, 0),
        ("leave as if all were well", 1, LOST),
        ("segmentation fault", 1, LOST),
    ],
)
def test_a_job_that_kills_its_worker_does_not_harm_twenty_others(
    start: Start, diary: Diary, how: str, max_attempts: int | None, before: int
) -> None:
    good = [write.using(max_attempts=max_attempts).enqueue(f"{n:02}") for n in range(10)]
    poison = die_by.using(max_attempts=max_attempts).enqueue(how)
    good += [write.using(max_attempts=max_attempts).enqueue(f"{n:02}") for n in range(10, 20)]
    lost_already(poison, before)
    worker = start("--threads", "4", ready=False)
    for n, result in enumerate(good):
        assert ended(result).return_value == f"{n:02}"
    ended(poison)
    assert_it_failed_by_its_own_limit(poison, before)
    assert diary.words().count(how) == MAX_LOST - before
    # What had begun, and was not recorded yet, runs once more.  What was only claimed has run once.
    for n, result in enumerate(good):
        assert statuses(result) in (["succeeded"], ["lost", "succeeded"])
        assert diary.words().count(f"{n:02}") <= len(statuses(result))
    assert Attempt.objects.filter(status="failed").count() == 1
    wait_until(lambda: len(worker.children) == 1, "the quarantine is left")
    assert "slots=1 queues=what is quarantined in " in worker.output
    assert ended(write.enqueue("after")).return_value == "after"
    assert worker.stop() == 0


def test_no_message_of_a_dead_process_waits_for_its_lock(start: Start, diary: Diary, session: Session) -> None:
    """The lock lasts a minute; what the dead held is free as soon as another process has started."""
    held = [hold.using(max_attempts=1).enqueue("ran"), hold.using(max_attempts=1).enqueue("waited")]
    worker = start("--threads", "1")
    started(diary, "ran")
    session.rows("update pgqueue_message set unlock_at = unlock_at + 3600000 where unlock_at is not null")
    [child] = worker.children
    worker.send_to(child, signal.SIGKILL)
    started(diary, "ran", attempt=2)
    started(diary, "waited", attempt=1)
    assert diary.entries("ran")[1]["pid"] != diary.entries("waited")[0]["pid"], "it runs alone"
    diary.allow("ran-2")
    diary.allow("waited-1")
    assert [ended(result).return_value for result in held] == [{"attempt": 2}, {"attempt": 1}]
    assert [statuses(result) for result in held] == [["lost", "succeeded"], ["succeeded"]]


def test_an_operator_who_kills_eighteen_times_makes_no_job_fail(start: Start, diary: Diary) -> None:
    result = hold.using(max_attempts=1).enqueue("x")
    lost_already(result, 15)
    worker = start("--threads", "2")
    for attempt in range(1, 4):
        started(diary, "x", attempt=attempt)
        worker.send_to(diary.entries("x")[-1]["pid"], signal.SIGKILL)
    started(diary, "x", attempt=4)
    diary.allow("x-4")
    assert ended(result).return_value == {"attempt": 4}
    assert statuses(result) == ["lost"] * 3 + ["succeeded"]


def test_an_operator_who_kills_the_whole_worker_eighteen_times_makes_no_job_fail(start: Start, diary: Diary) -> None:
    """Supervisor and child at the same moment: nobody reports the death, and the lock decides."""
    result = hold.using(max_attempts=1).enqueue("x")
    lost_already(result, 15)
    for attempt in range(1, 4):
        worker = start("--threads", "2", "--lock-seconds", "0.3", ready=False)
        started(diary, "x", attempt=attempt)
        worker.send_to_group(signal.SIGKILL)
        assert worker.ends() == -signal.SIGKILL
    start("--threads", "2", ready=False)
    started(diary, "x", attempt=4)
    diary.allow("x-4")
    assert ended(result).return_value == {"attempt": 4}
    assert statuses(result) == ["lost"] * 3 + ["succeeded"]


@pytest.mark.parametrize("how", ["exit", "segmentation fault"])
def test_a_task_that_may_be_lost_once_runs_once(start: Start, diary: Diary, how: str) -> None:
    poison = die_by.using(max_lost=1, max_attempts=5).enqueue(how)
    start(ready=False)
    ended(poison)
    assert statuses(poison) == ["failed"]
    [last] = attempts_of(poison)
    assert "(loss 1 of 1)" in str(last.error_message)
    assert diary.words().count(how) == 1


def test_a_coroutine_that_kills_its_worker_is_found_as_well(start: Start, diary: Diary) -> None:
    beside = hold_on.using(max_attempts=1).enqueue("beside")
    start("--threads", "2")
    started(diary, "beside")
    with transaction.atomic():
        poison = die_in_the_loop.using(max_attempts=1).enqueue()
        lost_already(poison)
    good = [write.using(max_attempts=1).enqueue(str(n)) for n in range(5)]
    started(diary, "beside", attempt=2)
    diary.allow("beside-2")
    ended(beside)
    assert [ended(result).return_value for result in good] == [str(n) for n in range(5)]
    assert statuses(beside) == ["lost", "succeeded"]
    ended(poison)
    assert_it_failed_by_its_own_limit(poison, LOST)
    assert Attempt.objects.filter(status="failed").count() == 1


def test_if_supervisor_and_child_die_the_lock_expires_and_suspects_run_alone(
    start: Start, diary: Diary, session: Session
) -> None:
    poison = die_by.using(max_attempts=1).enqueue("kill the supervisor too")
    good = [write.using(max_attempts=1).enqueue(str(n)) for n in range(20)]
    short = ("--threads", "4", "--lock-seconds", "0.3")
    for _ in range(3):
        assert start(*short, ready=False).ends() == -signal.SIGKILL
    # Whoever was claimed along twice was quarantined, and nobody has failed.
    assert Attempt.objects.filter(status="failed").count() == 0
    session.rows("update pgqueue_message set lost = 18 where id = %s", int(poison.id))
    assert start(*short, ready=False).ends() == -signal.SIGKILL
    start(*short)
    assert [ended(result).return_value for result in good] == [str(n) for n in range(20)]
    ended(poison)
    last = attempts_of(poison)[-1]
    assert last.status == "failed"
    # Where workers take long to start, the missing session is noticed before the lock runs out.
    assert "ran out" in str(last.error_message) or "no session of it is left" in str(last.error_message)
    assert "(loss 20 of 20)" in str(last.error_message)
    assert Attempt.objects.filter(status="failed").count() == 1


def test_a_burst_without_a_supervisor_ends_with_what_is_quarantined(
    start: Start, diary: Diary, session: Session
) -> None:
    result = write.enqueue("x")
    session.rows("update pgqueue_message set alone_at = dequeue_at, dequeue_at = 9223372036854775807, lost = 2")
    assert start("--burst", ready=False).ends() == 0
    assert statuses(result) == ["succeeded"]


def test_a_burst_that_is_asked_to_stop_begins_nothing_that_is_quarantined(
    start: Start, diary: Diary, session: Session
) -> None:
    quarantined = write.enqueue("y")
    session.rows("update pgqueue_message set alone_at = dequeue_at, dequeue_at = 9223372036854775807, lost = 2")
    hold.enqueue("x")
    worker = start("--burst", ready=False)
    started(diary, "x")
    worker.send(signal.SIGTERM)
    worker.says("stopping worker=")
    diary.allow("x-1")
    assert worker.ends() == 0
    assert statuses(quarantined) == []


def test_a_burst_goes_on_after_a_job_that_exits_with_code_0(start: Start, diary: Diary) -> None:
    poison = die_by.using(max_attempts=1).enqueue("leave as if all were well")
    lost_already(poison)
    good = [write.using(max_attempts=1).enqueue(str(n)) for n in range(20)]
    start("--burst", "--processes", "2", ready=False).ends()
    assert [statuses(result)[-1] for result in good] == ["succeeded"] * 20
    assert_it_failed_by_its_own_limit(poison, LOST)


def test_a_quarantined_message_of_a_paused_queue_starts_no_process(
    start: Start, diary: Diary, session: Session
) -> None:
    write.enqueue("x")
    session.rows("update pgqueue_message set alone_at = dequeue_at, dequeue_at = 9223372036854775807, lost = 2")
    session.rows("select pgqueue_queue_pause('default')")
    worker = start()
    seen = "select max(seen_at) from pgqueue_worker"
    wait_until(lambda: session.value(seen) is not None, "the worker is there")
    first = session.value(seen)
    wait_until(lambda: session.value(seen) > first, "the worker has looked around once more")
    assert worker.output.count("started worker=") == 1
    session.rows("select pgqueue_queue_resume('default')")
    wait_until(lambda: "x" in diary.words(), "it has run")
