"""What is held, and nobody runs any more, ends with a reason, and its process is replaced."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from django_pgqueue.models import Attempt
from tests.support.monitoring import becomes, health
from tests.support.site.tasks import hold, hold_on, write, write_row_on
from tests.support.waiting import wait_until
from tests.support.watching import ended, started, statuses
from tests.worker.misbehaviour import block_on, end_thread, end_thread_on

if TYPE_CHECKING:
    from tests.support.diary import Diary
    from tests.support.fixtures.workers import Start

SLOT_DIED = "django_pgqueue.exceptions.SlotDied"


@pytest.mark.parametrize("task", [end_thread, end_thread_on], ids=["thread", "event loop"])
def test_an_attempt_whose_thread_has_died_counts_and_is_tried_again(start: Start, task: Any) -> None:
    twice, once = task.using(max_attempts=2).enqueue(), task.using(max_attempts=1).enqueue()
    worker = start("--threads", "2")
    assert statuses(ended(once)) == ["failed"]
    wait_until(lambda: len(statuses(twice)) == 2, "it has been tried twice")
    assert statuses(ended(twice)) == ["retried", "failed"]
    attempts = Attempt.objects.filter(message_id__in=[twice.id, once.id])
    assert {attempt.error_class for attempt in attempts} == {SLOT_DIED}
    worker.says("slot died worker=", "retiring worker=")
    assert ended(write.enqueue("after")).return_value == "after"
    assert ended(write_row_on.enqueue("after")).status == "SUCCESSFUL"
    assert "crashed" not in worker.output
    assert worker.stop() == 0


def test_jobs_beside_a_dead_slot_end_where_they_are(start: Start, diary: Diary) -> None:
    beside = hold.enqueue("x")
    worker = start("--threads", "2")
    started(diary, "x")
    assert ended(end_thread.enqueue()).status == "FAILED"
    worker.says("retiring worker=")
    assert ended(write.enqueue("in the next process")).status == "SUCCESSFUL"
    diary.allow("x-1")
    assert ended(beside).return_value == {"attempt": 1}
    assert worker.stop() == 0


def test_coroutines_whose_event_loop_has_died_are_tried_again_elsewhere(start: Start, diary: Diary) -> None:
    beside = hold_on.using(max_attempts=2).enqueue("x")
    worker = start("--threads", "3")
    started(diary, "x")
    assert ended(end_thread_on.enqueue()).status == "FAILED"
    started(diary, "x", attempt=2)
    diary.allow("x-2")
    assert ended(beside).return_value == {"attempt": 2}
    assert statuses(beside) == ["retried", "succeeded"]
    assert worker.stop() == 0


def test_an_event_loop_that_is_blocked_is_shown_and_no_reason_for_a_restart(start: Start, diary: Diary) -> None:
    blocker = block_on.enqueue("x")
    worker = start("--metrics-port", "0", "--lock-seconds", "1")
    wait_until(lambda: diary.entries("x"), "it blocks")
    body = becomes(worker, "/readyz", 503, "blocked")
    assert body["processes"][0]["event_loop_blocked_seconds"] > 1
    assert health(worker)[0] == 200
    diary.allow("x")
    assert ended(blocker).status == "SUCCESSFUL"
    becomes(worker, "/readyz", 200, "ok")
    assert worker.stop() == 0


def test_a_process_that_cannot_be_replaced_though_a_slot_has_died_is_to_be_restarted() -> None:
    from django_pgqueue.worker.health.shared_state import SharedState
    from django_pgqueue.worker.health.status import Health

    board = SharedState(1)
    board.supervise(turned=100.0, pid=1, stopping=False, crashed=0, recycled=0)
    board.places[0].begin(pid=2, now=100.0)
    for died, alive in ((0, True), (1, False)):
        board.places[0].say(turned=100.0, looked=100.0, running=1, connected=True, stopping=False, died=died)
        assert Health.of(board, lock_seconds=60, now=101.0).alive is alive
    board.places[0].retire()
    assert Health.of(board, lock_seconds=60, now=101.0).alive
