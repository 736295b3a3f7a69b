"""A password is in nothing that a program says which cannot connect."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from urllib.parse import urlsplit

import pytest

from example_project.database import database_url
from tests.support.processes import ROOT
from tests.support.waiting import wait_until

SECRET = "tell-nobody-7f3a"
COMMANDS = (["qworker"], ["qworker", "--log-format", "json"], ["qstatus", "--once"], ["qdoctor"])


def urls() -> dict[str, str]:
    parts = urlsplit(database_url("test"))
    place = parts.netloc.rpartition("@")[2]
    return {
        "a wrong password": parts._replace(netloc=f"{parts.username}:{SECRET}@{place}").geturl(),
        "nobody there": f"postgresql://me:{SECRET}@127.0.0.1:1/shop",
    }


@pytest.mark.slow
@pytest.mark.parametrize("why", ["a wrong password", "nobody there"])
def test_no_password_is_printed(why: str) -> None:
    environment = {**os.environ, "DJANGO_SETTINGS_MODULE": "tests.support.site.settings", "DATABASE_URL": urls()[why]}
    processes = [
        subprocess.Popen(
            [sys.executable, "-m", "tests.support.site.manage", *command],
            cwd=ROOT,
            env=environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            start_new_session=True,
        )
        for command in COMMANDS
    ]
    try:
        wait_until(lambda: all(process.poll() is not None for process in processes), "they give up", seconds=120)
    finally:
        for process in processes:
            if process.poll() is None:
                os.killpg(process.pid, signal.SIGKILL)
    for command, process in zip(COMMANDS, processes, strict=True):
        said = process.communicate()[0]
        assert process.returncode != 0
        assert "connection" in said, (command, said)
        assert SECRET not in said, (command, said)
