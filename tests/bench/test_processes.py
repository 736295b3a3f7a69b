"""CPU seconds are those of all the processes, also of those that have ended."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from tests.bench.processes import PROC, TICKS, cpu_seconds, parse, postmaster

needs_proc = pytest.mark.skipif(not PROC.is_dir(), reason="needs /proc")


def test_the_name_of_a_program_may_hold_blanks_and_brackets() -> None:
    line = f"42 (a (b) c) S 7 42 42 0 -1 0 0 0 0 0 {TICKS} {TICKS} {TICKS} {2 * TICKS} 20 0 1 0 99"
    assert parse(line) == (7, 5.0)
    assert parse("") is None


@needs_proc
def test_a_child_that_has_ended_still_counts() -> None:
    work = "import os, time; t = time.process_time\nwhile t() < 0.1: pass"
    parent = (
        f"import subprocess, sys; subprocess.run([sys.executable, '-c', {work!r}]); print('x', flush=True); input()"
    )
    with subprocess.Popen([sys.executable, "-c", parent], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdout
        assert process.stdin
        process.stdout.readline()
        used = cpu_seconds(process.pid)
        process.stdin.write(b"\n")
    assert used is not None
    assert used >= 0.05  # ticks are counted, and one may be missed


def test_a_missing_process_has_unknown_cpu_seconds() -> None:
    assert cpu_seconds(None) is None
    assert cpu_seconds(2**22 + 1) is None


@needs_proc
def test_a_process_that_is_no_postgres_has_no_postmaster() -> None:
    assert postmaster(os.getpid()) is None
