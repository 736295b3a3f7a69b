"""Notes of jobs are neither lost nor counted twice, whoever runs them."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
import time
from typing import TYPE_CHECKING

from tests.bench.tally import VARIABLE, NoTally, Tally, tally

if TYPE_CHECKING:
    from pathlib import Path

    import pytest


def run(counted: Tally, code: str) -> None:
    """In another process, where ``t`` is its tally."""
    environment = {**os.environ, VARIABLE: str(counted.path), "PYTHONPATH": os.pathsep.join(sys.path)}
    program = f"import os; from tests.bench.tally import tally; t = tally(); {code}"
    subprocess.run([sys.executable, "-c", program], env=environment, check=True)


def test_threads_that_count_at_the_same_time_lose_nothing(tmp_path: Path) -> None:
    counted = Tally.create(tmp_path / "tally")

    def work() -> None:
        for _ in range(2000):
            counted.ran()

    threads = [threading.Thread(target=work) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert counted.count == 16_000


def test_other_processes_count_into_the_same_tally(tmp_path: Path) -> None:
    counted = Tally.create(tmp_path / "tally", marks=3)
    before = time.monotonic_ns()
    run(counted, "t.ran(0); t.ran(2)")
    counted.ran(7)  # a number that nobody waits for
    first, second, third = counted.marks()
    assert counted.count == 3
    assert before < first < third < counted.last
    assert second == 0


def test_a_forked_process_does_not_write_over_its_parents_count(tmp_path: Path) -> None:
    counted = Tally.create(tmp_path / "tally")
    counted.ran()
    # In a program of its own: this process has threads, and must not fork.
    run(counted, "t.ran(); child = os.fork(); t.ran(); os._exit(0) if not child else os.waitpid(child, 0)")
    assert counted.count == 4


def test_outside_of_a_measurement_nothing_is_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(VARIABLE, raising=False)
    assert isinstance(tally(), NoTally)
