"""A worker where nothing can fork, as on Windows: one process, for development."""

from __future__ import annotations

import signal
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

from django_pgqueue.models import Worker
from tests.support.processes import ROOT
from tests.support.site import jobs
from tests.support.site.tasks import hold, write
from tests.support.waiting import SECONDS, wait_until
from tests.support.watching import asleep, ended, started, statuses

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from tests.support.diary import Diary

    Start = Callable[..., subprocess.Popen[str]]

pytestmark = [pytest.mark.slow, pytest.mark.django_db(transaction=True)]


@pytest.fixture
def start(environment: dict[str, str]) -> Iterator[Start]:
    workers: list[subprocess.Popen[str]] = []

    def start_worker(*arguments: str) -> subprocess.Popen[str]:
        workers.append(
            subprocess.Popen(
                [sys.executable, "-m", "tests.worker.without_fork", *arguments],
                cwd=ROOT,
                env=environment,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                text=True,
            )
        )
        return workers[-1]

    yield start_worker
    for worker in workers:
        worker.kill()
        worker.communicate()


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_worker_without_fork_runs_jobs_and_stops_on_a_signal(
    start: Start, diary: Diary, number: signal.Signals
) -> None:
    worker = start("qworker", "--threads", "2")
    assert ended(write.enqueue("one")).worker_ids
    assert ended(jobs.which_session_async.enqueue()).return_value
    wait_until(asleep, "it sleeps")
    ended(write.enqueue("woken"))
    result = hold.enqueue("x")
    started(diary, "x")
    worker.send_signal(number)
    wait_until(lambda: not any(row.has_room for row in Worker.objects.all()), "it stops")
    diary.allow("x-1")
    said, _ = worker.communicate(timeout=SECONDS)
    assert worker.returncode == 0, said
    assert statuses(result) == ["succeeded"]
    assert "Traceback" not in said
    assert not Worker.objects.exists()


def test_a_burst_ends(start: Start, diary: Diary) -> None:
    for word in ("a", "b"):
        write.enqueue(word)
    worker = start("qworker", "--burst")
    said, _ = worker.communicate(timeout=SECONDS)
    assert (worker.returncode, sorted(diary.words())) == (0, ["a", "b"]), said


def test_a_worker_without_fork_exits_when_it_is_idle(start: Start, diary: Diary) -> None:
    write.enqueue("a")
    worker = start("qworker", "--exit-when-idle", "0.5")
    said, _ = worker.communicate(timeout=SECONDS)
    assert (worker.returncode, diary.words()) == (0, ["a"]), said


def test_other_commands_do_not_need_fork(start: Start) -> None:
    for command in (["qstatus"], ["check"], ["qdoctor"]):
        worker = start(*command)
        said, _ = worker.communicate(timeout=SECONDS)
        assert "Traceback" not in said, said
