"""Coroutines: many at a time in one process, beside threads."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tests.support.site.tasks import hold, hold_on, launch_exit, meet_on
from tests.support.watching import ended, started, statuses

if TYPE_CHECKING:
    from tests.support.diary import Diary
    from tests.support.fixtures.workers import Start


def test_as_many_async_tasks_run_at_a_time_as_there_are_slots(start: Start) -> None:
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


def test_a_background_task_of_a_coroutine_cannot_end_the_loop(start: Start, diary: Diary) -> None:
    waiting = hold_on.enqueue("x")
    worker = start("--threads", "2")
    started(diary, "x")
    ended(launch_exit.enqueue())
    diary.allow("x-1")
    assert ended(waiting).return_value == {"attempt": 1}
    assert worker.stop() == 0
