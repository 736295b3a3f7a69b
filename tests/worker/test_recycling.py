"""Processes that have done enough, used too much, or crash: each is replaced, and no job is lost or done twice."""

from __future__ import annotations

import contextlib
import errno
import logging
import os
import re
import signal
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from django_pgqueue.models import Attempt
from django_pgqueue.worker.run.marks import Marks
from django_pgqueue.worker.settings import MAX_RETIRING, WorkerSettings
from django_pgqueue.worker.supervise.supervisor import (
    MAX_RESTART_SECONDS,
    STABLE_SECONDS,
    Process,
    Supervisor,
    reap_orphans,
)
from tests.support.processes import QWorker
from tests.support.site import slow
from tests.support.waiting import wait_until
from tests.support.watching import at_rest, ended, started, statuses

if TYPE_CHECKING:
    from collections.abc import Callable

    from django_pgqueue.compat import AnyTaskResult
    from tests.support.diary import Diary
    from tests.support.fixtures.workers import Start


def pids(results: list[AnyTaskResult]) -> list[Any]:
    """The processes of jobs that answer theirs, in the order in which they ended."""
    for result in results:
        assert statuses(ended(result)) == ["succeeded"]
    return list(Attempt.objects.order_by("id").values_list("result", flat=True))


def test_a_process_is_replaced_after_so_many_jobs(start: Start) -> None:
    worker = start("--max-jobs", "3", "--threads", "1")
    results = [slow.whoami.enqueue() for _ in range(12)]
    found = pids(results)
    assert [found.count(pid) for pid in dict.fromkeys(found)] == [3, 3, 3, 3]
    worker.says("jobs ended")
    wait_until(lambda: len(worker.children) == 1, "there is one process")
    assert "crashed" not in worker.output
    assert worker.stop() == 0


def test_a_process_that_uses_too_much_memory_is_replaced(start: Start) -> None:
    worker = start("--max-memory", "190", "--threads", "1")
    [before] = pids([slow.whoami.enqueue()])
    big = ended(slow.keep_memory.enqueue(200))
    assert big.return_value == before
    worker.says("MB of memory in use")
    worker.says("started worker=", times=2)
    fresh = ended(slow.whoami.enqueue()).return_value
    assert fresh != before
    assert worker.children == [fresh]
    assert worker.stop() == 0


def test_a_process_that_uses_too_much_memory_from_the_start_runs_a_job(start: Start) -> None:
    worker = start("--max-memory", "1", "--threads", "1")
    first, second = pids([slow.whoami.enqueue() for _ in range(2)])
    assert first != second
    worker.says("MB of memory in use", times=2)
    worker.says("started worker=", times=3)
    assert worker.output.count("started worker=") == 3
    assert worker.stop() == 0


def test_collections_of_garbage_do_not_look_at_what_a_process_has_loaded(start: Start) -> None:
    worker = start("--threads", "1")
    assert ended(slow.frozen.enqueue()).return_value > 10_000
    assert worker.stop() == 0


def test_a_long_job_does_not_keep_the_other_slots_idle(start: Start, diary: Diary) -> None:
    long = slow.hold.using(max_attempts=1).enqueue("x")
    worker = start("--max-jobs", "3", "--threads", "2", "--grace-seconds", "0.1")
    started(diary, "x")
    [first, second, *others] = pids([slow.whoami.enqueue() for _ in range(5)])
    worker.says("retiring worker=", "running=1: 3 jobs ended or begun")
    assert [first == second, first in others, others] == [True, False, [others[0]] * 3]
    diary.allow("x-1")
    assert (ended(long).return_value, statuses(long)) == (first, ["succeeded"])
    wait_until(lambda: first not in worker.children, "it leaves when its job has ended")
    assert worker.stop() == 0


def test_a_long_job_in_a_process_that_is_too_large_does_not_keep_the_other_slots_idle(
    start: Start, diary: Diary
) -> None:
    long = slow.hold.using(max_attempts=1).enqueue("x")
    worker = start("--max-memory", "190", "--threads", "2", "--grace-seconds", "0.1")
    started(diary, "x")
    large = ended(slow.keep_memory.enqueue(200)).return_value
    worker.says("retiring worker=", "MB of memory in use")
    fresh = {ended(slow.whoami.enqueue()).return_value for _ in range(3)}
    assert len(fresh - {large}) == 1
    assert large not in fresh
    diary.allow("x-1")
    assert (ended(long).return_value, statuses(long)) == (large, ["succeeded"])
    wait_until(lambda: worker.children == list(fresh), "it leaves when its job has ended")
    assert worker.stop() == 0


def test_a_process_whose_slots_are_busy_is_not_replaced_yet(start: Start, diary: Diary) -> None:
    """It could take nothing more anyhow."""
    long = slow.hold.enqueue("x")
    worker = start("--max-jobs", "1", "--threads", "1")
    started(diary, "x")
    behind = slow.whoami.enqueue()
    diary.allow("x-1")
    assert ended(long).return_value != ended(behind).return_value
    assert worker.output.index(f"succeeded id={long.id}") < worker.output.index("retiring worker=")


def test_the_number_of_retiring_processes_is_limited(start: Start, diary: Diary) -> None:
    """Each keeps its memory."""
    long: list[AnyTaskResult] = [slow.hold.enqueue(f"{number}") for number in range(1 + MAX_RETIRING)]
    worker = start("--max-jobs", "1", "--threads", "2")
    for number in range(1 + MAX_RETIRING):
        started(diary, f"{number}")
    worker.says("not replaced pid=", f"{MAX_RETIRING} earlier processes still have jobs to end")
    behind = slow.whoami.enqueue()
    assert len(worker.children) == 1 + MAX_RETIRING
    for pid in worker.children:
        at_rest(pid)
    diary.allow("0-1")
    assert ended(behind).return_value != ended(long[0]).return_value
    for number in range(1, 1 + MAX_RETIRING):
        diary.allow(f"{number}-1")
    assert len({ended(result).return_value for result in [*long, behind]}) == 2 + MAX_RETIRING, "one job each"
    assert worker.stop() == 0


@pytest.mark.parametrize("processes", ["1", "2"])
def test_a_burst_goes_on_until_nothing_is_left(start: Start, processes: str) -> None:
    results = [slow.whoami.enqueue() for _ in range(12)]
    worker = start("--burst", "--max-tasks", "3", "--threads", "1", "--processes", processes, ready=False)
    assert worker.ends() == 0
    assert [statuses(result) for result in results] == [["succeeded"]] * 12


def test_a_process_that_crashes_repeatedly_restarts_later_each_time(start: Start) -> None:
    worker = start("--threads", "1")
    for times in (1, 2):
        worker.send_to(worker.children[0], signal.SIGKILL)
        wait_until(lambda: worker.output.count("started worker=") == 1 + times, "it has started again")  # noqa: B023
    assert re.findall(r"restart_in_seconds=([0-9.]+)", worker.output) == ["0.0", "2.0"]
    result = slow.whoami.enqueue()
    assert ended(result).return_value in worker.children
    assert worker.stop() == 0


def test_the_restart_delay_is_bounded_and_reset_after_a_stable_time(caplog: pytest.LogCaptureFixture) -> None:
    supervisor = Supervisor(WorkerSettings())
    [place] = supervisor.places

    def wait_after(lived_seconds: float) -> float:
        now = time.monotonic()
        place.process = Process(4711, started=now - lived_seconds, seat=0, marks=Marks(1))
        supervisor._ended(place, place.process, 9)
        return max(0.0, round(place.start_at - now))

    with caplog.at_level(logging.CRITICAL, "django_pgqueue.worker"):
        assert [wait_after(0) for _ in range(8)] == [0, 2, 4, 8, 16, MAX_RESTART_SECONDS, 30, 30]
        assert [wait_after(STABLE_SECONDS + 1), wait_after(0)] == [0, 2]


def test_a_worker_goes_on_when_its_log_cannot_be_written(environment: dict[str, str]) -> None:
    """Its disk is full, or nobody reads it any more."""
    arguments = ("--max-jobs", "1", "--threads", "1", "--health-port", "0")
    buffered = {**environment, "PYTHONUNBUFFERED": ""}
    worker = QWorker(arguments, environment=buffered, output=Path("/dev/full"))
    try:
        found = pids([slow.whoami.enqueue() for _ in range(3)])
        assert len(set(found)) == 3
        worker.send(signal.SIGTERM)
        wait_until(lambda: worker.process.poll() is not None, "the worker ends")
        assert worker.process.wait() == 120, "Python's own, where the last lines of a program cannot be written"
    finally:
        worker.kill()


def test_a_process_that_cannot_be_forked_is_started_later(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """The limit of processes is not the same for root: the error of the fork stands in for it."""

    def fail() -> int:
        raise BlockingIOError(errno.EAGAIN, "Resource temporarily unavailable")

    supervisor = Supervisor(WorkerSettings(processes=2))
    monkeypatch.setattr(os, "fork", fail)
    supervisor._start_missing()
    assert [place.process for place in supervisor.places] == [None, None]
    assert 0 < supervisor._seconds_until_start() <= 1
    assert caplog.text.count("no process can be started: ") == 2


def test_the_first_process_of_a_container_reaps_what_jobs_have_left_behind() -> None:
    """In a process that has no children but these."""
    tester = os.fork()
    if tester == 0:
        code = 1
        with contextlib.suppress(BaseException):
            own, left = forked(signal.pause), forked(lambda: None)
            os.waitid(os.P_PID, left, os.WEXITED | os.WNOWAIT)
            reap_orphans({own})
            with pytest.raises(ChildProcessError):
                os.waitpid(left, 0)
            os.kill(own, signal.SIGKILL)
            os.waitid(os.P_PID, own, os.WEXITED | os.WNOWAIT)
            reap_orphans({own})
            code = os.waitpid(own, 0)[0] != own
        os._exit(code)
    assert os.waitpid(tester, 0)[1] == 0


def forked(do: Callable[[], object]) -> int:
    pid = os.fork()
    if pid == 0:
        do()
        os._exit(0)
    return pid
