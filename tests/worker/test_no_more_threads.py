"""A system that has no more threads for a moment ends no process, and nothing that runs in it."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any

import pytest

from django_pgqueue.worker.run import shared_thread
from django_pgqueue.worker.supervise import exit_handlers
from tests.support.site import jobs, slow, tasks
from tests.support.waiting import SECONDS, wait_until
from tests.support.watching import ended, started, statuses

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.support.diary import Diary
    from tests.support.fixtures.consumers import Consume, Effects

pytestmark = pytest.mark.django_db(transaction=True)

REFUSALS = 2


@pytest.fixture
def refuse(monkeypatch: pytest.MonkeyPatch) -> Callable[[str], list[str]]:
    """Refuses to start threads of a name, or of those that begin so, at first."""
    start = threading.Thread.start

    def refuse(name: str) -> list[str]:
        refused: list[str] = []

        def start_or_not(thread: threading.Thread) -> None:
            if thread.name.startswith(name) and len(refused) < REFUSALS:
                refused.append(name)
                message = "can't start new thread"
                raise RuntimeError(message)
            start(thread)

        monkeypatch.setattr(threading.Thread, "start", start_or_not)
        return refused

    return refuse


@pytest.mark.parametrize(
    "slot",
    [("slot-1", tasks.nothing, tasks.hold_on), ("coroutines", jobs.follow_async, tasks.hold)],
    ids=["slot", "event loop"],
)
def test_a_slot_starts_later(
    consume: Consume,
    diary: Diary,
    refuse: Callable[[str], list[str]],
    caplog: pytest.LogCaptureFixture,
    slot: tuple[str, Any, Any],
) -> None:
    name, task, beside = slot
    consume(threads=2)
    runs = beside.enqueue("x")
    started(diary, "x")
    refused = refuse(name)
    assert statuses(ended(task.enqueue())) == ["succeeded"]
    assert len(refused) == REFUSALS
    assert caplog.text.count("a slot cannot start, and is tried again: can't start new thread") == 1
    diary.allow("x-1")
    assert statuses(ended(runs)) == ["succeeded"]


def test_an_attempt_whose_time_is_up_ends_later(
    consume: Consume, diary: Diary, refuse: Callable[[str], list[str]]
) -> None:
    refused = refuse("aside")
    consume(threads=1)
    assert statuses(ended(slow.stay.enqueue("x"))) == ["failed"]
    assert len(refused) == REFUSALS
    diary.allow("x-1")


def test_another_thread_for_the_database_work_of_async_tasks_starts_later(
    consume: Consume,
    diary: Diary,
    effects: Effects,
    refuse: Callable[[str], list[str]],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(shared_thread, "STUCK_SECONDS", 0.1)
    effects.session.rows("insert into feature_effect (word) values ('free')")
    consume(threads=3)
    stuck = slow.lock_in_shared_thread.enqueue("x")
    started(diary, "x")
    refused = refuse("ThreadPoolExecutor")
    assert statuses(ended(slow.use_shared_thread.enqueue())) == ["succeeded"]
    assert len(refused) == REFUSALS
    diary.allow("x-1")
    assert statuses(ended(stuck))[-1] == "succeeded"
    wait_until(lambda: not effects.writers(), "the call that went on has ended")


def test_a_call_that_got_no_thread_is_not_made_later(refuse: Callable[[str], list[str]]) -> None:
    """Whoever asked for it has the error, and tries again or fails."""
    made: list[str] = []
    shared = shared_thread.SharedThread(ThreadPoolExecutor(1))
    refuse("ThreadPoolExecutor")
    for _ in range(REFUSALS):
        with pytest.raises(RuntimeError, match="can't start new thread"):
            shared.submit(made.append, "refused")
    shared.submit(made.append, "made").result(SECONDS)
    assert made == ["made"]
    shared._pool.shutdown()


def test_the_upkeep_starts_later(
    consume: Consume, refuse: Callable[[str], list[str]], caplog: pytest.LogCaptureFixture
) -> None:
    refused = refuse("pgqueue-upkeep")
    consume(threads=1)
    wait_until(lambda: any(it.name == "pgqueue-upkeep" for it in threading.enumerate()), "it has started")
    assert len(refused) == REFUSALS
    assert "maintenance is not possible worker=" in caplog.text
    assert statuses(ended(tasks.nothing.enqueue())) == ["succeeded"]


def test_a_process_leaves_all_the_same(refuse: Callable[[str], list[str]], caplog: pytest.LogCaptureFixture) -> None:
    refused = refuse("exit handlers")
    exit_handlers.run()
    assert len(refused) == 1
    assert "exit handlers are not called, and what they had to send may be lost: can't start new thread" in caplog.text
