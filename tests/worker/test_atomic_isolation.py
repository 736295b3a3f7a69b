"""Atomic tasks of projects with REPEATABLE READ or SERIALIZABLE, and those that meet another transaction."""

from __future__ import annotations

import json
import logging
import signal
from typing import TYPE_CHECKING

import pytest

from django_pgqueue import control
from django_pgqueue.models import Attempt
from tests.support.site import isolated
from tests.support.waiting import wait_until
from tests.support.watching import ended, started, statuses

if TYPE_CHECKING:
    from tests.support.diary import Diary
    from tests.support.fixtures.consumers import Consume, Effects
    from tests.support.fixtures.workers import Session, Start

LEVELS = {
    "repeatable read": {"isolation_level": 3},
    "serializable": {"isolation_level": 4},
    "serializable by the server": {"options": "-c default_transaction_isolation=serializable"},
    "read committed": {"isolation_level": 2, "options": "-c default_transaction_isolation=serializable"},
}
STRICT = {name: options for name, options in LEVELS.items() if name != "read committed"}
SHORT_LOCK = ("--lock-seconds", "1", "--threads", "2")
LOCKS_LATER = "select pgqueue_clock() - locked_at > interval '3 s' from pgqueue_message where id = %s"

pytestmark = pytest.mark.django_db(transaction=True)


@pytest.mark.parametrize("level", LEVELS)
def test_an_atomic_task_that_outlives_its_lock_and_reports_progress_succeeds(
    start: Start, diary: Diary, effects: Effects, session: Session, level: str
) -> None:
    """While others look for what was left."""
    result = isolated.report_and_hold.enqueue("x")
    options = json.dumps(LEVELS[level])
    for _ in range(2):
        start(*SHORT_LOCK, PGQUEUE_TEST_DATABASE_OPTIONS=options)
    started(diary, "x")
    wait_until(lambda: session.value(LOCKS_LATER, int(result.id)), "three locks have passed")
    diary.allow("x-1")
    assert ended(result).return_value == level.removesuffix(" by the server")
    assert statuses(result) == ["succeeded"]
    assert effects() == ["x"]
    assert len(diary.entries("x")) == 1


@pytest.mark.parametrize("level", ["serializable"])
def test_another_worker_takes_over_when_a_worker_dies(start: Start, diary: Diary, effects: Effects, level: str) -> None:
    result = isolated.report_and_hold.enqueue("x")
    options = json.dumps(LEVELS[level])
    killed = start(*SHORT_LOCK, PGQUEUE_TEST_DATABASE_OPTIONS=options)
    started(diary, "x")
    killed.kill()
    start(*SHORT_LOCK, PGQUEUE_TEST_DATABASE_OPTIONS=options)
    started(diary, "x", attempt=2)
    diary.allow("x-2")
    ended(result)
    assert statuses(result) == ["lost", "succeeded"]
    assert effects() == ["x"]


@pytest.mark.parametrize("level", ["serializable"])
def test_a_worker_that_stops_gives_up_a_job_whose_transaction_holds_the_row(
    start: Start, diary: Diary, effects: Effects, level: str
) -> None:
    result = isolated.report_and_hold.enqueue("x")
    options = json.dumps(LEVELS[level])
    lasting = ("--lock-seconds", "600", "--grace-seconds", "0.5")
    leaving = start(*lasting, PGQUEUE_TEST_DATABASE_OPTIONS=options)
    started(diary, "x")
    leaving.send(signal.SIGTERM)
    assert leaving.ends() == 1
    assert str(Attempt.objects.get(message_id=result.id).error_message).endswith("stopped while it ran (loss 1 of 20)")
    start(*lasting, PGQUEUE_TEST_DATABASE_OPTIONS=options)
    started(diary, "x", attempt=2)
    diary.allow("x-2")
    ended(result)
    assert statuses(result) == ["lost", "succeeded"]
    assert effects() == ["x"]


@pytest.mark.parametrize("level", ["repeatable read", "serializable"])
def test_a_request_to_cancel_does_not_wait_and_is_obeyed(
    start: Start, diary: Diary, effects: Effects, level: str
) -> None:
    """The request changes the row, so that the attempt cannot be ended in its own transaction any more."""
    result = isolated.report_and_hold.enqueue("x")
    worker = start(*SHORT_LOCK, PGQUEUE_TEST_DATABASE_OPTIONS=json.dumps(LEVELS[level]))
    started(diary, "x")
    assert control.cancel(result) == "requested"
    diary.allow("x-1")
    ended(result)
    assert statuses(result) in (["cancelled"], ["succeeded"])
    assert effects() == ([] if statuses(result) == ["cancelled"] else ["x"])
    worker.says("restarted id=")


@pytest.mark.parametrize("level", ["serializable"])
def test_a_timeout_ends_an_atomic_task(start: Start, diary: Diary, effects: Effects, level: str) -> None:
    result = isolated.hold_with_a_timeout.enqueue("x")
    start(*SHORT_LOCK, "--grace-seconds", "60", PGQUEUE_TEST_DATABASE_OPTIONS=json.dumps(LEVELS[level]))
    started(diary, "x")
    assert ended(result).errors[0].exception_class_path == "django_pgqueue.exceptions.TaskTimeout"
    assert statuses(result) == ["failed"]
    assert effects() == []
    diary.allow("x-1")


@pytest.mark.parametrize("level", STRICT)
def test_a_serialization_failure_is_repeated_at_once(
    start: Start, diary: Diary, effects: Effects, session: Session, level: str
) -> None:
    session.rows("insert into feature_effect values ('seen')")
    result = isolated.change_what_it_has_seen.using(max_attempts=1).enqueue(["a"])
    worker = start("--threads", "1", PGQUEUE_TEST_DATABASE_OPTIONS=json.dumps(LEVELS[level]))
    started(diary, "saw")
    session.rows("update feature_effect set word = word || '?'")
    diary.allow("saw")
    assert ended(result).return_value == ["a", "more"]
    assert statuses(result) == ["succeeded"]
    assert effects() == ["seen?!"]
    assert worker.output.count(f"restarted id={result.id} ") == 1
    assert "could not serialize access" in worker.output


@pytest.mark.parametrize("code", ["40001", "40P01"])
def test_the_repetition_uses_no_attempt(
    consume: Consume, diary: Diary, effects: Effects, caplog: pytest.LogCaptureFixture, code: str
) -> None:
    caplog.set_level(logging.INFO, "django_pgqueue.worker")
    result = isolated.raise_in_the_database.using(max_attempts=1).enqueue("x", code, 3)
    consume(threads=1)
    assert ended(result).return_value == 4
    assert statuses(result) == ["succeeded"]
    assert effects() == ["x"]
    assert caplog.text.count(f"restarted id={result.id} ") == 3
    assert "they met" in caplog.text


def test_the_number_of_repetitions_is_limited(consume: Consume, diary: Diary, effects: Effects) -> None:
    result = isolated.raise_in_the_database.using(max_attempts=2).enqueue("x", "40001", 1000)
    consume(threads=1)
    ended(result)
    assert statuses(result) == ["retried", "failed"]
    assert len(diary.entries("x")) == 2 * (1 + 3)
    assert effects() == []


def test_other_errors_are_not_repeated(consume: Consume, diary: Diary, effects: Effects) -> None:
    result = isolated.raise_in_the_database.using(max_attempts=1).enqueue("x", "22012", 1)
    consume(threads=1)
    assert statuses(ended(result)) == ["failed"]
    assert len(diary.entries("x")) == 1
    assert effects() == []
