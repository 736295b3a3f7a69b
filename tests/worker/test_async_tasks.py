"""Coroutines: many at a time in one process, beside threads."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tests.support.site.tasks import fail_on, fail_once_on, hold, hold_on, launch_exit, meet_on, write_row_on
from tests.support.watching import ended, started, statuses

if TYPE_CHECKING:
    from tests.support.diary import Diary
    from tests.support.fixtures.workers import Session, Start


def test_as_many_run_at_a_time_as_there_are_slots(start: Start) -> None:
    """Each waits until eight have come; never are there more."""
    results = [meet_on.enqueue(8) for _ in range(24)]
    start("--threads", "8", "-v", "0", ready=False)
    assert {ended(result).return_value for result in results} == {8}


def test_threads_and_coroutines_run_side_by_side(start: Start, diary: Diary) -> None:
    results = [hold.enqueue("a"), hold_on.enqueue("b"), hold.enqueue("c"), hold_on.enqueue("d")]
    worker = start("--threads", "4")
    for word in "abcd":
        started(diary, word)
    entries = {entry["word"]: entry for entry in diary.entries()}
    assert {entry["pid"] for entry in entries.values()} == set(worker.children)
    assert entries["b"]["thread"] == entries["d"]["thread"] not in (entries["a"]["thread"], entries["c"]["thread"])
    for word in "abcd":
        diary.allow(f"{word}-1")
    assert [statuses(ended(result)) for result in results] == [["succeeded"]] * 4
    assert worker.stop() == 0


def test_a_coroutine_is_tried_again_and_knows_what_was_before(start: Start) -> None:
    result = fail_once_on.using(max_attempts=3).enqueue()
    start("-v", "0", ready=False)
    assert ended(result).return_value == {"attempt": 2, "errors": ["builtins.ValueError"]}
    assert statuses(result) == ["retried", "succeeded"]


def test_a_coroutine_that_fails_takes_nobody_with_it(start: Start) -> None:
    worker = start("-v", "0", "--threads", "1", ready=False)
    errors = {
        "exception": "builtins.ValueError",
        "exit": "builtins.SystemExit",
        "interrupt": "builtins.KeyboardInterrupt",
        "cancelled": "asyncio.exceptions.CancelledError",
        "base": "builtins.GeneratorExit",
    }
    for how, path in errors.items():
        failed = ended(fail_on.enqueue(how))
        assert failed.status == "FAILED"
        assert [error.exception_class_path for error in failed.errors] == [path]
    assert ended(fail_on.enqueue("not")).return_value == "not"
    assert "crashed" not in worker.output
    assert worker.stop() == 0


def test_something_that_a_coroutine_has_started_can_not_end_the_loop(start: Start, diary: Diary) -> None:
    waiting = hold_on.enqueue("x")
    worker = start("--threads", "2")
    started(diary, "x")
    ended(launch_exit.enqueue())
    diary.allow("x-1")
    assert ended(waiting).return_value == {"attempt": 1}
    assert worker.stop() == 0


def test_coroutines_use_the_database_through_sync_to_async(start: Start, session: Session) -> None:
    results = [write_row_on.enqueue(f"{n}") for n in range(20)]
    start("-v", "0", ready=False)
    assert {ended(result).status for result in results} == {"SUCCESSFUL"}
    assert session.value("select count(distinct word) from worker_row") == 20
