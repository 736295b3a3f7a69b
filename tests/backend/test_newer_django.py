"""A later Django may have more fields in its results, contexts and tasks."""

from __future__ import annotations

import subprocess
import sys

from tests.support.processes import ROOT


def test_jobs_run_though_django_s_classes_have_more_fields(environment: dict[str, str]) -> None:
    program = "from tests.support.newer_django import main; main()"
    ended = subprocess.run(
        [sys.executable, "-c", program], env=environment, cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert ended.returncode == 0, ended.stderr
