"""The short form of the storm.  The long one is started by hand: docs/pages/about/storm.md."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from django_pgqueue.functions import sql_files
from tests.proofs.reliability import page, sabotage
from tests.proofs.reliability.faults import FAULTS
from tests.proofs.reliability.tormentor import plans
from tests.proofs.reliability.workers import HAS_POOL
from tests.support.pgbouncer import PROGRAM

ROOT = Path(__file__).resolve().parents[3]
RUN = "import sys; from tests.proofs.reliability.__main__ import run; sys.exit(run(sys.argv[1:]))"
TIMED = {
    "recovery_is_quick",
    "a_graceful_stop_ends_within_grace",
    "a_sleeper_looks_once_more",
    "bystanders_are_not_held_up",
}
"""What a machine that is busy with other tests can violate."""


def storm(path: Path, *arguments: str) -> dict[str, Any]:
    words = [sys.executable, "-c", RUN, "--short", "--json", str(path), *arguments]
    done = subprocess.run(words, cwd=ROOT, capture_output=True, text=True, check=False)
    assert path.exists(), done.stdout + done.stderr
    found: dict[str, Any] = json.loads(path.read_text())
    return found


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_a_short_storm_violates_nothing(tmp_path: Path) -> None:
    shown = tmp_path / "page.md"
    shown.write_text(f"Before\n{page.BEGIN}what was there\n{page.END}After\n")
    words = ("--seed", "2", "--jobs", "1500", "--faults", "24", "--page", str(shown))
    report = storm(tmp_path / "report.json", *words)
    assert {name: found for name, found in report["violations"].items() if name not in TIMED} == {}
    assert report["broken faults"] == []
    assert report["jobs"] >= 1500
    assert report["kinds of faults"] >= 20
    environments = {"behind PgBouncer": PROGRAM is not None, "psycopg's pool": HAS_POOL, "bystanders": True}
    assert {name for name, is_there in environments.items() if is_there} <= set(report["begun by"])
    assert "DST change" in report["fault kinds"]
    text = shown.read_text()
    assert (text[:7], text[-6:]) == ("Before\n", "After\n")
    assert f"| faults | {report['faults done']} of {report['kinds of faults']} kinds |" in text
    assert "what was there" not in text


def test_a_seed_stands_for_its_faults() -> None:
    first, again, other = (
        {lane: [fault.name for fault in plan] for lane, plan in plans(seed, 200, short=False).items()}
        for seed in (1, 1, 2)
    )
    assert first == again != other
    assert {name for plan in first.values() for name in plan} == set(FAULTS)


@pytest.mark.parametrize("kind", sabotage.IN_SQL)
def test_each_sabotage_still_applies_to_the_code(kind: str) -> None:
    name, text, _ = sabotage.IN_SQL[kind]
    assert sql_files.current(name).count(text) == 1
