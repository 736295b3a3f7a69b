"""The Procfile of docs/deploy, run by honcho."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

from example_project.development.embedded_postgres.postmaster import free_port
from tests.project.recipes.conftest import answers, deploy_file
from tests.support.pages import ROOT
from tests.support.processes import group
from tests.support.site.tasks import write
from tests.support.waiting import wait_until
from tests.support.watching import ended

if TYPE_CHECKING:
    from pathlib import Path

    from tests.support.fixtures.workers import Session

pytest.importorskip("gunicorn", reason="gunicorn is not installed")
pytest.importorskip("honcho", reason="honcho is not installed")
pytestmark = pytest.mark.slow


@pytest.fixture
def honcho(tmp_path: Path) -> list[str]:
    here = {"gunicorn --bind 0.0.0.0": f"gunicorn --pythonpath {tmp_path} --bind 127.0.0.1"}
    (tmp_path / "Procfile").write_text(deploy_file("Procfile", tmp_path, here))
    return [sys.executable, "-m", "honcho", "--procfile", str(tmp_path / "Procfile"), "--app-root", str(ROOT), "start"]


def test_it_migrates_serves_and_works(
    honcho: list[str], environment: dict[str, str], session: Session, tmp_path: Path
) -> None:
    released = subprocess.run([*honcho, "release"], env=environment, capture_output=True, text=True, check=False)
    assert released.returncode == 0, released.stdout
    port = free_port()
    with (tmp_path / "output").open("wb") as output:
        process = subprocess.Popen(
            [*honcho, "--port", str(port), "web", "worker"],
            env=environment,
            stdout=output,
            stderr=output,
            start_new_session=True,
        )
    try:
        wait_until(lambda: answers(port), "the website answers at $PORT")
        assert ended(write.enqueue("one")).is_finished
        process.terminate()
        process.wait(60)
        wait_until(lambda: group(process.pid) == [], "all of it has ended")
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()
        print((tmp_path / "output").read_text())
    wait_until(lambda: not session.strangers(), "the sessions are closed")
