"""``qworker --reload``: changed code runs at once, and what runs already has its grace."""

from __future__ import annotations

import os
import signal
import time
from typing import TYPE_CHECKING, Any, Protocol

import pytest
from django.db import connection
from django.utils import autoreload

from django_pgqueue import control, functions
from django_pgqueue.models import Attempt
from django_pgqueue.worker.supervise import reloader
from tests.support.processes import ROOT
from tests.support.site.tasks import hold
from tests.support.waiting import wait_until
from tests.support.watching import ended, holder, started, statuses

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from tests.support.diary import Diary
    from tests.support.fixtures.workers import Start
    from tests.support.processes import QWorker

RELOADER, SUPERVISOR, WATCHER, WORKER = range(4)


class Project:
    """A project whose code a test may change."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        folder.mkdir()
        (folder / "__init__.py").touch()
        (folder / "settings.py").write_text(
            "from tests.support.site.settings import *\nINSTALLED_APPS = ['reloadable', *INSTALLED_APPS]\n"
        )
        self.says(1)

    def says(self, answer: Any) -> None:
        self.write(
            "from django_pgqueue.tasks import task\n\n\n"
            f"@task\ndef answer():\n    return {answer!r}  # {'-' * answer}\n"
        )

    def write(self, text: str) -> None:
        (self.folder / "tasks.py").write_text(text)


class Develop(Protocol):
    def __call__(self, *arguments: str, **variables: str) -> QWorker: ...


@pytest.fixture
def project(tmp_path: Path) -> Project:
    return Project(tmp_path / "reloadable")


@pytest.fixture
def develop(start: Start, project: Project, tmp_path: Path) -> Develop:
    """Starts workers of the project."""
    paths = os.pathsep.join([str(tmp_path), str(ROOT)])

    def start_in_project(*arguments: str, **variables: str) -> QWorker:
        where: Any = {"DJANGO_SETTINGS_MODULE": "reloadable.settings", "PYTHONPATH": paths, **variables}
        return start("--threads", "2", *arguments, **where)

    return start_in_project


def answer() -> Any:
    """What a job of the project answers."""
    message = functions.enqueue(
        connection, functions.NewMessage(content='{"args": [], "kwargs": {}}', task="reloadable.tasks.answer")
    )
    ended = Attempt.objects.filter(message_id=message.id)
    wait_until(ended.exists, "the job ends")
    return ended.get().result


def test_changed_code_runs_and_running_jobs_may_end(develop: Develop, project: Project, diary: Diary) -> None:
    worker = develop("--reload", "--grace-seconds", "600")
    assert answer() == 1
    held = hold.enqueue("x")
    started(diary, "x")
    project.says(22)
    worker.says("reloading", "stopping")
    assert holder(held)
    diary.allow("x-1")
    assert statuses(ended(held)) == ["succeeded"]
    worker.says("started worker=", times=2)
    assert answer() == 22
    assert len(worker.alive) == 4
    assert worker.stop() == 0
    assert worker.alive == []


def test_changed_code_stops_the_retiring_processes_too(develop: Develop, project: Project, diary: Diary) -> None:
    worker = develop("--reload", "--max-jobs", "2", "--grace-seconds", "600")
    held = hold.enqueue("x")
    started(diary, "x")
    assert answer() == 1
    worker.says("retiring worker=")
    worker.says("started worker=", times=2)
    project.says(22)
    worker.says("reloading", "stopping")
    assert holder(held)
    diary.allow("x-1")
    assert statuses(ended(held)) == ["succeeded"]
    worker.says("started worker=", times=3)
    assert len(worker.alive) == 4
    assert worker.stop() == 0
    assert worker.alive == []


def test_a_worker_waits_while_code_is_broken_and_can_be_stopped(develop: Develop, project: Project) -> None:
    worker = develop("--reload")
    project.write("this is no Python\n")
    worker.says("the changed code cannot be run", "SyntaxError")
    assert len(worker.alive) == 1
    project.says(333)
    worker.says("started worker=", times=2)
    assert answer() == 333
    project.write("this is no Python\n")
    worker.says("waiting for the next change", times=2)
    worker.send(signal.SIGTERM)
    worker.ends(10)
    assert worker.alive == []


def test_code_that_is_broken_at_the_start_is_an_error(develop: Develop, project: Project, start: Start) -> None:
    project.write("this is no Python\n")
    with pytest.raises(AssertionError, match="SyntaxError"):
        develop("--reload")


def test_a_change_before_the_first_look_is_not_missed(project: Project, monkeypatch: pytest.MonkeyPatch) -> None:
    """Django's autoreloader takes the times that it finds at its first look for those of the running code."""
    began = time.time()
    os.utime(project.folder / "tasks.py", (began - 60, began - 60))

    class Late(autoreload.StatReloader):
        SLEEP_TIME = 0.01  # type: ignore[assignment]

        def watched_files(self, include_globs: bool = True) -> Iterator[Path]:  # noqa: ARG002
            yield project.folder / "tasks.py"

        def snapshot_files(self) -> Iterator[tuple[Path, float]]:
            os.utime(project.folder / "tasks.py")  # whoever had looked before would not see this
            yield from super().snapshot_files()
            self.snapshot_files = super().snapshot_files  # type: ignore[method-assign]

    monkeypatch.setattr(autoreload, "get_reloader", Late)
    looks = iter(range(50))
    assert reloader.watch(lambda: next(looks, None) is not None, since=began - 1) == reloader.CHANGED


def test_the_reloader_is_the_default_with_debug(develop: Develop) -> None:
    reloaded = develop(PGQUEUE_TEST_DEBUG="1")
    wait_until(lambda: len(reloaded.alive) == 4, "there are a reloader, a supervisor, a watcher and a worker")
    assert reloaded.stop() == 0
    for flags, debug in ((["--noreload"], "1"), ([], "0")):
        worker = develop(*flags, PGQUEUE_TEST_DEBUG=debug)
        wait_until(lambda worker=worker: len(worker.alive) == 2, "there are a supervisor and a worker")  # type: ignore[misc]
        assert worker.stop() == 0


def test_ctrl_c_reaches_the_whole_group_and_counts_once(develop: Develop, diary: Diary) -> None:
    held = hold.enqueue("x")
    worker = develop("--reload")
    started(diary, "x")
    worker.send_to_group(signal.SIGINT)
    worker.says("stopping")
    assert holder(held)
    diary.allow("x-1")
    assert worker.ends() == 0
    assert statuses(ended(held)) == ["succeeded"]
    assert worker.alive == []


def test_a_second_request_stops_now(develop: Develop, diary: Diary) -> None:
    held = hold.enqueue("x")
    worker = develop("--reload", "--grace-seconds", "600")
    started(diary, "x")
    worker.send(signal.SIGTERM)
    worker.says("stopping")
    worker.send(signal.SIGTERM)
    assert worker.ends() == 1
    assert f"abandoned id={held.id}" in worker.output
    assert worker.alive == []


def test_no_process_stays_when_the_reloader_is_killed(develop: Develop) -> None:
    worker = develop("--reload")
    worker.send(signal.SIGKILL)
    worker.process.wait()
    wait_until(lambda: not worker.alive, "the others leave")


def test_an_order_of_a_person_stops_the_reloader_too(develop: Develop) -> None:
    worker = develop("--reload", "--processes", "2")
    worker.says("started worker=", times=2)
    wait_until(lambda: control.order_worker(worker.id, "stop"), "its row is there, and has the order")
    assert worker.ends() == 0
    assert worker.alive == []
