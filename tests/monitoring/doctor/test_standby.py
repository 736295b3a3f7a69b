"""The doctor is sent to a real standby instead of the primary, or to a primary that waits for one."""

from __future__ import annotations

import datetime as dt
import json
import os
import signal
import subprocess
import sys
import threading
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest

from django_pgqueue.monitoring.doctor import Severity, locks
from tests.support.fixtures.servers import server
from tests.support.processes import ROOT
from tests.support.waiting import wait_until

if TYPE_CHECKING:
    from tests.support.server import Server

__all__ = ["server"]


def manage(server: Server, port: int, *arguments: str) -> str:
    variables = {
        **os.environ,
        "DJANGO_SETTINGS_MODULE": "tests.monitoring.doctor.standby_settings",
        "STORM_PORTS": str(port),
        "STORM_PASSWORD": server.password,
        "STORM_SESSIONS": "any",
    }
    done = subprocess.run(
        [sys.executable, "-m", "tests.support.site.manage", *arguments],
        cwd=ROOT, env=variables, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode in (0, 1), done.stderr
    return done.stdout


def names(document: str) -> dict[str, Any]:
    return {finding["name"]: finding for finding in json.loads(document)["findings"]}


@pytest.mark.slow
def test_a_standby_is_found_and_fails_no_check(server: Server) -> None:
    manage(server, server.primary.port, "migrate", "--verbosity", "0")
    standby = server.standby()
    try:
        assert "read-only" not in names(manage(server, server.primary.port, "qdoctor", "--json"))
        found = names(manage(server, standby.port, "qdoctor", "--json"))
    finally:
        standby.end(signal.SIGQUIT)
    assert found["read-only"]["severity"] == "error"
    assert found["read-only"]["values"] == {"standby": True}
    assert "could-not-look" not in found, found


@pytest.mark.slow
@pytest.mark.once
def test_commits_wait(server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(locks, "LONG_COMMIT", dt.timedelta(seconds=-1))
    with server.connect() as admin, server.connect() as session:
        patient: Any = SimpleNamespace(rows=lambda query, values: admin.execute(query, values).fetchall())
        assert list(locks.commits(patient)) == []
        admin.execute("create table waited ()")
        admin.execute("alter system set synchronous_standby_names = 'gone'")
        admin.execute("select pg_reload_conf()")
        is_found = threading.Event()

        def commits() -> None:
            while not is_found.is_set():  # the first ones do not wait: the checkpointer has yet to read it, too
                session.execute("insert into waited default values")

        commit = threading.Thread(target=commits)
        commit.start()
        [found] = wait_until(lambda: list(locks.commits(patient)), "it waits")
        assert found.severity is Severity.ERROR
        assert found.found.startswith("1 commit waits for a synchronous standby, for ")
        is_found.set()
        admin.execute("alter system reset synchronous_standby_names")
        admin.execute("select pg_reload_conf()")
        commit.join()
