"""The steps that all peers go through, with the one that needs no environment; and what happens when one is missing."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from tests.bench.peers import redis
from tests.bench.peers.adapter import chunks
from tests.bench.peers.catalogue import OURS, PEERS
from tests.bench.peers.environment import ROOT, Environment, Unavailable, last_line

if TYPE_CHECKING:
    from pathlib import Path


def test_every_peer_of_the_catalogue_has_an_adapter() -> None:
    folder = ROOT / "tests" / "bench" / "peers"
    assert [name for name in PEERS if not (folder / f"{name}.py").exists()] == []
    assert "class Peer(" in (folder / "celery.py").read_text()


def test_a_peer_that_does_not_install_reports_the_reason(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PGQUEUE_BENCH_PEERS", str(tmp_path))
    peer = Environment(replace(OURS, packages=(f"{tmp_path}/nowhere",)))
    monkeypatch.setattr(
        Environment, "_install", lambda self, _words: self._run([sys.executable, "-c", "raise OSError('no disk')"])
    )
    with pytest.raises(Unavailable, match="OSError: no disk"):
        peer.prepare()


def test_a_peer_that_needs_a_newer_python_is_unavailable(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("PGQUEUE_BENCH_PEERS", str(tmp_path))
    with pytest.raises(Unavailable, match=r"needs Python 4\.0, and this is 3\."):
        Environment(replace(OURS, packages=("future",), python=(4, 0))).prepare()


def test_a_peer_does_not_get_our_settings(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DJANGO_SETTINGS_MODULE", "tests.bench.settings")
    assert "DJANGO_SETTINGS_MODULE" not in Environment(PEERS["celery"]).process_environment
    assert "DJANGO_SETTINGS_MODULE" in Environment(OURS).process_environment


def test_an_operation_that_a_peer_lacks_is_reported_and_not_raised(tmp_path: Path) -> None:
    """The program needs nothing but the standard library."""
    (tmp_path / "tests" / "bench" / "peers").mkdir(parents=True)
    for folder in ("tests", "tests/bench", "tests/bench/peers"):
        (tmp_path / folder / "__init__.py").touch()
    source = (ROOT / "tests" / "bench" / "peers" / "adapter.py").read_text()
    (tmp_path / "tests/bench/peers/adapter.py").write_text(source)
    (tmp_path / "tests/bench/peers/small.py").write_text(
        "from tests.bench.peers.adapter import Adapter\n"
        "class Peer(Adapter):\n"
        "    configuration = 'none'\n"
        "    def enqueue(self, number): pass\n"
    )

    def call(*words: str) -> object:
        command = [sys.executable, "-S", "-m", "tests.bench.peers.adapter", "small", *words]
        done = subprocess.run(
            command, cwd=tmp_path, env={**os.environ, "PYTHONPATH": ""}, capture_output=True, check=True
        )
        return json.loads(done.stdout)

    assert call("configuration") == "none"
    assert call("fill", "5") == {"not supported": "fill"}
    assert isinstance(call("one_by_one", "0.01"), float)
    assert isinstance(call("singly", "2", "0"), list)


def test_peers_that_need_redis_are_unavailable_without_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "")
    with pytest.raises(Unavailable, match="no redis-server"), redis.server():
        pass


def test_chunks_leave_nothing_out() -> None:
    assert [list(chunk) for chunk in chunks(range(5), 2)] == [[0, 1], [2, 3], [4]]


def test_the_last_line_of_a_traceback_is_the_reason() -> None:
    assert last_line("Traceback:\n  File x\nValueError: no\n\n") == "ValueError: no"
    assert last_line("") == ""
