"""The command runs with small sizes, and says what is wrong with its arguments."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest
from psycopg.conninfo import conninfo_to_dict

from tests.bench import command
from tests.bench.sizes import FULL, HELP, Sizes
from tests.support.address import url
from tests.support.databases import empty_database
from tests.support.fixtures.sessions import test_database

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

__all__ = ["test_database"]

SMALL = """
--runs 1 --jobs 40 --processes 1 --bulk 50 --pick-ups 5 --sleeping-pick-ups 1 --clients 2 --sleepers 1
--enqueue-seconds 0.5 --rates 40 --seconds 1 --links 20 --dependants 20 --unknown 20
"""


@pytest.fixture(scope="module")
def database(test_database: str) -> Iterator[str]:
    """A database of its own on the server of the tests: its URL."""
    with empty_database(test_database, "bench") as conninfo:
        yield url(str(conninfo_to_dict(conninfo)["dbname"]))


@pytest.mark.django_db  # so that the tests' database is there
def test_a_small_run_measures_what_was_chosen(database: str, tmp_path: Path) -> None:
    chosen = ["drain", "bulk", "enqueue", "flow", "pick-up", "recovery", "unknown", "dependants"]
    words = (
        f"from tests.bench import command; command.main({[*SMALL.split(), '--only', *chosen]!r} + ['--json', 'f.json'])"
    )
    environment = {
        **os.environ,
        "DATABASE_URL": database,
        "PYTHONPATH": os.pathsep.join([str(path) for path in sys.path]),
    }
    done = subprocess.run(
        [sys.executable, "-c", words], cwd=tmp_path, env=environment, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    written = json.loads((tmp_path / "f.json").read_text())
    figures = {f"{figure['workload']}: {figure['name']}": figure for figure in written["figures"]}
    assert {figure["workload"] for figure in figures.values()} == {*chosen}
    assert all(figure["median"] > 0 for name, figure in figures.items() if figure["unit"] == "/s"), figures
    assert figures["drain: no-op tasks, 1 x 4"]["costs_per_job"]["wal_bytes"] > 100
    assert figures["drain: no-op tasks, 1 x 4"]["costs_per_job"]["dead_rows"] == pytest.approx(2, abs=0.5)
    for there in ("enqueue: SQL function, 2 clients, 1 workers asleep", "pick-up: a job every 20 ms: p50"):
        assert figures[there]["of_the_limit"] > 0
    assert written["about"]["jobs"] == 40
    assert "drain: no-op tasks, 1 x 4" in done.stdout


def test_each_workload_that_is_offered_is_there() -> None:
    assert list(command.workloads()) == list(command.WORKLOADS)


def test_a_given_size_overrides_that_of_full() -> None:
    options = command.parser().parse_args(["--full", "--ahead", "5", "--clients", "1", "2"])
    chosen = Sizes.chosen(options)
    assert (chosen.ahead, chosen.clients, chosen.history) == (5, (1, 2), FULL.history)
    assert Sizes.chosen(command.parser().parse_args([])) == Sizes()


def test_every_size_has_a_help_text() -> None:
    assert list(HELP) == list(Sizes().said())
