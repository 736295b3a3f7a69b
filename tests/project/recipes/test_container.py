"""The entrypoint of docs/deploy, with gunicorn and a worker."""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import subprocess
import sys
import urllib.request
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from example_project.development.embedded_postgres.postmaster import free_port
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

WSGI = """
def application(environ, start_response):
    start_response("200 OK", [("Content-Type", "text/plain")])
    return [b"shop"]
"""
Container = subprocess.Popen[bytes]


@pytest.fixture
def port() -> int:
    return free_port()


@pytest.fixture
def container(
    environment: dict[str, str], session: Session, tmp_path: Path, port: int
) -> Iterator[Callable[[], Container]]:
    """Starts the entrypoint as the first process of a group, with this test's Python and port."""
    (tmp_path / "shop_wsgi.py").write_text(WSGI)
    script = (ROOT / "docs" / "deploy" / "entrypoint.sh").read_text()
    for told, here in {
        "gunicorn --bind 0.0.0.0:8000": f"{sys.executable} -m gunicorn --bind 127.0.0.1:{port}",
        "shop.wsgi": "shop_wsgi",
        "python manage.py": f"{sys.executable} -m tests.support.site.manage",
    }.items():
        assert script.count(told) == 1
        script = script.replace(told, here)
    entrypoint = tmp_path / "entrypoint.sh"
    entrypoint.write_text(script)
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


def answers(port: int) -> bool:
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/", timeout=5) as answer:
            return bool(answer.read() == b"shop")
    except OSError:
        return False


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
@pytest.mark.parametrize(("dies", "code"), [("qworker", 137), ("gunicorn", 137)])
def test_a_process_that_dies_ends_the_container(
    container: Callable[[], Container], diary: Diary, port: int, dies: str, code: int
) -> None:
    process = container()
    wait_until(lambda: answers(port), "the website answers")
    held = hold.enqueue("held")
    started(diary, "held")
    diary.allow("held-1")
    ended(held)
    os.kill(part(process, dies), signal.SIGKILL)
    assert process.wait(60) == code
    wait_until(lambda: group(process.pid) == [], "all of it has ended")
