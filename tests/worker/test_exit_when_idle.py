"""``--exit-when-idle``: a worker that nobody needs any more leaves by itself."""

from __future__ import annotations

import datetime as dt
from typing import TYPE_CHECKING

import pytest

from django_pgqueue.models import Message, Worker
from django_pgqueue.worker.claim.idleness import AGAIN_SECONDS, Idleness
from django_pgqueue.worker.run.marks import Marks
from django_pgqueue.worker.settings import WorkerSettings
from django_pgqueue.worker.supervise.supervisor import Process, ProcessPlace, Supervisor
from tests.support.site.tasks import hold, nothing, write
from tests.support.watching import ended, started, statuses

if TYPE_CHECKING:
    from tests.support.diary import Diary
    from tests.support.fixtures.workers import Start


# Functions, so that a type checker does not take the first answer for the last one.


def over(idleness: Idleness) -> bool:
    return idleness.is_over


def may_leave(marks: Marks) -> bool:
    return marks.may_leave


def is_idle(place: ProcessPlace) -> bool:
    return place.is_idle


@pytest.mark.parametrize("flags", [[], ["--processes", "2"], ["--health-port", "0"]], ids=" ".join)
def test_all_processes_exit_when_no_message_was_ready(start: Start, flags: list[str]) -> None:
    """What is scheduled stays for the next worker."""
    done = nothing.enqueue()
    scheduled = nothing.using(run_after=dt.timedelta(hours=1)).enqueue()
    worker = start("--exit-when-idle", "0.5", *flags)
    assert worker.ends() == 0
    assert statuses(done) == ["succeeded"]
    assert list(Message.objects.values_list("id", flat=True)) == [int(scheduled.id)]
    assert not Worker.objects.exists()
    assert "abandoned=0" in worker.output
    assert "crashed" not in worker.output


def test_a_running_job_keeps_the_worker_alive(start: Start, diary: Diary) -> None:
    held = hold.enqueue("x")
    worker = start("--exit-when-idle", "0.2", "--processes", "2", "--threads", "1")
    started(diary, "x")
    for number in range(3):  # by the other process, which would have left
        ended(write.enqueue(f"{number}"))
    diary.allow("x-1")
    assert worker.ends() == 0
    assert statuses(held) == ["succeeded"]


def test_a_worker_looks_once_more_before_it_exits() -> None:
    idleness = Idleness(60.0)
    assert idleness.due_at() == float("inf")
    idleness.looked(found=False, everywhere=True, now=10.0)
    assert not over(idleness)
    assert idleness.due_at() == 70.0
    idleness.looked(found=False, everywhere=True, now=40.0)
    assert not over(idleness)
    idleness.looked(found=False, everywhere=False, now=70.5)
    assert not over(idleness), "a look from floors on has left places out"
    assert idleness.due_at() == 70.5 + AGAIN_SECONDS
    idleness.looked(found=False, everywhere=True, now=72.0)
    assert over(idleness)
    assert idleness.due_at() == float("inf"), "the polls go on as they are"


def test_the_idle_time_restarts_with_each_job() -> None:
    idleness = Idleness(60.0)
    idleness.looked(found=False, everywhere=True, now=10.0)
    idleness.looked(found=True, everywhere=True, now=69.0)
    idleness.looked(found=False, everywhere=True, now=75.0)
    assert idleness.due_at() == 135.0
    idleness.worked()
    assert idleness.due_at() == float("inf")


def test_a_burst_ends_with_the_first_look_that_finds_nothing() -> None:
    idleness = Idleness(WorkerSettings(burst=True).leaves_after_seconds)
    idleness.looked(found=True, everywhere=True, now=10.0)
    assert not over(idleness)
    idleness.looked(found=False, everywhere=True, now=11.0)
    assert over(idleness)


def test_a_worker_without_the_option_does_not_exit() -> None:
    idleness = Idleness(WorkerSettings().leaves_after_seconds)
    idleness.looked(found=False, everywhere=True, now=10.0)
    idleness.looked(found=False, everywhere=True, now=1e9)
    assert not over(idleness)
    assert idleness.due_at() == float("inf")


class TestProcessesLeaveTogether:
    @pytest.fixture
    def supervisor(self) -> Supervisor:
        supervisor = Supervisor(WorkerSettings(processes=2, exit_when_idle_seconds=60.0))
        for pid, place in enumerate(supervisor.places):
            place.process = Process(pid, 0.0, None, Marks(1))
        return supervisor

    def marks(self, supervisor: Supervisor) -> list[Marks]:
        return [process.marks for place in supervisor.places for process in place.processes]

    def test_an_idle_process_waits_for_the_others(self, supervisor: Supervisor) -> None:
        one, other = self.marks(supervisor)
        one.be_idle(True)
        supervisor._let_leave_if_idle()
        assert not may_leave(one)
        other.be_idle(True)
        supervisor._let_leave_if_idle()
        assert may_leave(one)
        assert may_leave(other)

    def test_an_exited_process_is_restarted_if_the_other_found_a_message(self, supervisor: Supervisor) -> None:
        for marks in self.marks(supervisor):
            marks.be_idle(True)
        supervisor._let_leave_if_idle()
        one, other = supervisor.places
        assert one.process is not None
        assert other.process is not None
        one.process.marks.leave()
        supervisor._ended(one, one.process, 0)
        supervisor._let_leave_if_idle()
        assert is_idle(one)
        other.process.marks.be_idle(False)
        supervisor._let_leave_if_idle()
        assert not is_idle(one)
        assert not may_leave(other.process.marks)

    def test_a_retiring_process_with_a_job_keeps_the_others(self, supervisor: Supervisor) -> None:
        supervisor.places[0].retire()
        supervisor.places[0].process = Process(3, 0.0, None, Marks(1))
        *others, last = self.marks(supervisor)
        for marks in [*others[1:], last]:
            marks.be_idle(True)
        supervisor._let_leave_if_idle()
        assert not may_leave(last)
