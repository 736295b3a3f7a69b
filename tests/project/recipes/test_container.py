"""The entrypoint of docs/deploy, with gunicorn and a worker."""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import subprocess
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from example_project.development.embedded_postgres.postmaster import free_port
from tests.project.recipes.conftest import answers, deploy_file
from tests.support.pages import ROOT
from tests.support.processes import group
from tests.support.site.tasks import hold
from tests.support.waiting import wait_until
from tests.support.watching import at_rest, ended, started

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from tests.support.diary import Diary
    from tests.support.fixtures.workers import Session

pytest.importorskip("gunicorn", reason="gunicorn is not installed")
if shutil.which("bash") is None:
    pytest.skip("needs bash", allow_module_level=True)

Container = subprocess.Popen[bytes]


@pytest.fixture
def port() -> int:
    return free_port()


@pytest.fixture
def container(
    environment: dict[str, str], session: Session, tmp_path: Path, port: int
) -> Iterator[Callable[[], Container]]:
    """Starts the entrypoint as the first process of a group, with this test's Python and port."""
    entrypoint = tmp_path / "entrypoint.sh"
    here = {"gunicorn --bind 0.0.0.0:8000": f"gunicorn --bind 127.0.0.1:{port}"}
    entrypoint.write_text(deploy_file("entrypoint.sh", tmp_path, here))
    variables = {**environment, "PYTHONPATH": os.pathsep.join([str(tmp_path), str(ROOT)])}
    running: list[Container] = []

    def start() -> Container:
        with (tmp_path / "output").open("wb") as output:
            process = subprocess.Popen(
                ["bash", str(entrypoint)], cwd=ROOT, env=variables, stdout=output, stderr=output, start_new_session=True
            )
        running.append(process)
        return process

    yield start
    for process in running:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()
    wait_until(lambda: not session.strangers(), "the sessions are closed")


def part(process: Container, name: str) -> int:
    """The process of the website or of the worker that the entrypoint has started."""
    children = Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().split()
    [found] = [pid for pid in map(int, children) if name in Path(f"/proc/{pid}/cmdline").read_text()]
    return found


@pytest.mark.slow
def test_a_stopped_container_ends_its_jobs_and_then_itself(
    container: Callable[[], Container], diary: Diary, port: int
) -> None:
    held = hold.enqueue("held")
    process = container()
    wait_until(lambda: answers(port), "the website answers")
    started(diary, "held")
    process.send_signal(signal.SIGTERM)
    wait_until(lambda: not answers(port), "the website has ended")
    process.send_signal(signal.SIGTERM)  # impatient: the worker does not hear of it
    at_rest(process.pid)
    assert process.poll() is None, "the job still runs"
    diary.allow("held-1")
    assert process.wait(60) == 0
    assert group(process.pid) == []
    assert ended(held).return_value == {"attempt": 1}


@pytest.mark.slow
@pytest.mark.parametrize("dies", ["qworker", "gunicorn"])
def test_a_process_that_dies_ends_the_container(
    container: Callable[[], Container], diary: Diary, port: int, dies: str
) -> None:
    process = container()
    wait_until(lambda: answers(port), "the website answers")
    held = hold.enqueue("held")
    started(diary, "held")
    diary.allow("held-1")
    ended(held)
    os.kill(part(process, dies), signal.SIGKILL)
    assert process.wait(60) == 128 + signal.SIGKILL
    wait_until(lambda: group(process.pid) == [], "all of it has ended")
