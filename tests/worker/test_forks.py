"""Processes that a task starts are nobody's worker: they have signals of their own, no connection, and never a slot."""

from __future__ import annotations

import contextlib
import os
import signal
from itertools import product
from typing import TYPE_CHECKING

import pytest

from tests.support.site.tasks import write
from tests.support.waiting import wait_until
from tests.support.watching import ended, statuses
from tests.worker.forking import (
    ENDS,
    IN_A_CHILD,
    end_a_process,
    fork,
    fork_among_many,
    fork_and_await,
    fork_and_interrupt,
    fork_atomically,
    fork_in_a_thread_of_its_own,
    fork_in_the_thread_of_databases,
    fork_on,
    hold_a_lock_in_a_child,
    interrupt_a_program,
    keep_an_executor,
    leave_a_pool,
    use_a_pool,
    wait_for_an_executor,
    with_a_connection,
    write_in_steps,
)

if TYPE_CHECKING:
    from django_pgqueue.compat import AnyTask
    from tests.support.diary import Diary
    from tests.support.fixtures.workers import Session, Start


def test_a_forked_process_that_returns_from_its_task_ends(start: Start, session: Session) -> None:
    forking: list[AnyTask] = [fork, fork_atomically, fork_on]
    results = [(how, job.enqueue(how)) for job in forking for how in ENDS]
    worker = start("--threads", "1")
    for how, result in results:
        assert statuses(ended(result)) == ["succeeded"], (how, result.task.name)
        assert (how, result.return_value) == (how, ENDS[how])
    assert session.rows("select word from worker_row order by word") == [(how,) for how in sorted(ENDS)]
    assert len(worker.children) == 1
    assert worker.stop() == 0


@pytest.mark.parametrize(
    "job", [fork_in_the_thread_of_databases, fork_in_a_thread_of_its_own], ids=lambda job: job.name
)
def test_a_forked_process_that_returns_to_a_thread_pool_ends(start: Start, job: AnyTask) -> None:
    """Which keeps what it ended with for a thread that is not there."""
    results = {how: job.enqueue(how) for how in ENDS}
    worker = start("--threads", "4")
    codes = {how: ended(result).return_value for how, result in results.items()}
    assert codes == {how: 4 if how == "exit at once" else 70 for how in ENDS}
    assert "pool of threads" in worker.output
    assert len(worker.children) == 1
    assert worker.stop() == 0


def test_a_forked_process_that_returns_to_the_event_loop_ends(start: Start, diary: Diary) -> None:
    forking = [fork_and_await.enqueue() for _ in range(4)]
    writing = [write_in_steps.enqueue(f"w{n}", 40) for n in range(8)]
    worker = start("--threads", "12")
    assert [ended(result).return_value for result in forking] == [70] * 4
    assert [ended(result).status for result in writing] == ["SUCCESSFUL"] * 8
    assert sorted(diary.words()) == sorted(f"w{n}-{step}" for n in range(8) for step in range(40))
    assert {entry["pid"] for entry in diary.entries()} == set(worker.children)
    assert "event loop" in worker.output
    assert worker.stop() == 0


def test_no_job_runs_twice_because_another_forks(start: Start, diary: Diary) -> None:
    forking = [fork_among_many.enqueue(f"f{n}") for n in range(50)]
    others = [write.enqueue(f"w{n}") for n in range(150)]
    worker = start("--threads", "4", "-v", "0", ready=False)
    assert {ended(result).status for result in forking} == {"SUCCESSFUL"}
    assert {ended(result).status for result in others} == {"SUCCESSFUL"}
    assert sorted(diary.words()) == sorted([f"f{n}" for n in range(50)] + [f"w{n}" for n in range(150)])
    assert len(worker.children) == 1
    assert worker.stop() == 0


def test_a_process_that_a_task_starts_can_be_terminated(start: Start) -> None:
    start("--threads", "4", "-v", "0", ready=False)
    for number, once_it_runs in product([signal.SIGTERM, signal.SIGINT, signal.SIGHUP], [False, True]):
        results = [end_a_process.enqueue(int(number), once_it_runs=once_it_runs) for _ in range(6)]
        assert [ended(result).return_value for result in results] == [-number] * 6
    for task, number in product((fork_and_interrupt, interrupt_a_program), (signal.SIGINT, signal.SIGHUP)):
        assert ended(task.enqueue(int(number))).return_value == -number


@pytest.mark.parametrize(("method", "size", "slots"), [("fork", 2, 20), ("spawn", 1, 4)])
def test_a_pool_in_each_slot_works(start: Start, method: str, size: int, slots: int) -> None:
    """An interpreter that is spawned takes half a second."""
    results = [use_a_pool.enqueue(method, size) for _ in range(slots)]
    worker = start("--threads", str(slots), "-v", "0", ready=False)
    wait_until(lambda: all(statuses(result) for result in results), "all pools have ended", 120)
    assert [ended(result).return_value for result in results] == [[0, 1, 4, 9, 16]] * slots
    assert worker.stop() == 0
    assert worker.alive == []


def test_a_forked_process_does_not_touch_the_connections_of_its_worker(start: Start) -> None:
    worker = start("--threads", "1")
    for what, (_, code) in IN_A_CHILD.items():
        result = ended(with_a_connection.enqueue(what))
        assert (what, result.status, result.errors) == (what, "SUCCESSFUL", [])
        assert (what, *result.return_value) == (what, True, code)
    assert "database error" not in worker.output
    assert worker.stop() == 0


def test_a_process_that_outlives_its_worker_keeps_no_lock_of_it(start: Start, session: Session, diary: Diary) -> None:
    worker = start("--threads", "1")
    hold_a_lock_in_a_child.enqueue("x")
    [entry] = wait_until(lambda: diary.entries("x"), "the task has forked")
    [pid] = [pid for pid in worker.children if pid != entry["child"]]
    try:
        worker.send_to(pid, signal.SIGKILL)
        alive = "select count(*) from pg_stat_activity where pid = %s"
        wait_until(lambda: not session.value(alive, entry["server"]), "the session of the dead is closed")
        os.kill(entry["child"], 0)
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.kill(entry["child"], signal.SIGKILL)


@pytest.mark.parametrize("leave", [leave_a_pool, wait_for_an_executor])
def test_a_worker_that_gives_a_job_up_ends_its_processes(start: Start, diary: Diary, leave: AnyTask) -> None:
    """As the interpreter does at the end of a program."""
    worker = start("--threads", "1", "--grace-seconds", "0.1")
    leave.enqueue("x")
    [entry] = wait_until(lambda: diary.entries("x"), "the processes are there")
    assert set(entry["children"]) <= set(worker.children)
    assert worker.stop() == 1
    wait_until(lambda: not worker.alive, "they are gone")


@pytest.mark.parametrize("method", ["fork", "spawn", "forkserver"])
def test_a_worker_that_exits_ends_the_executors_of_its_tasks(start: Start, method: str) -> None:
    """Nobody else would: its processes wait for work that no process can give them any more."""
    worker = start("--threads", "1")
    children = set(ended(keep_an_executor.enqueue(method)).return_value)
    assert children <= set(worker.children)
    assert worker.stop() == 0
    wait_until(lambda: not worker.alive, "the processes of the executor are gone")
