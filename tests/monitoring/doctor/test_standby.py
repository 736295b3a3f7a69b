"""The doctor is sent to a real standby instead of the primary."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from typing import TYPE_CHECKING, Any

import pytest

from tests.support.fixtures.servers import server
from tests.support.processes import ROOT

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
