"""Programs of a release, or of today, on one database."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.support.address import process_variables
from tests.support.history import commit_of, extract
from tests.support.waiting import wait_until

if TYPE_CHECKING:
    from collections.abc import Sequence

ENQUEUER = (Path(__file__).parent / "enqueuer.py").read_text()
CODE = ("django_pgqueue", "sql", "tests", "example_project")


def released(version: str, folder: Path) -> Path:
    """The code of a release, from the history."""
    commit = commit_of(version)
    if commit is None:
        pytest.skip(f"the history with {version} is not here")
    extract(commit, folder, *CODE)
    return folder


class Program:
    """A process of some code on some database."""

    def __init__(self, code: Path, database: str, arguments: Sequence[str], output: Path) -> None:
        self.output = output
        environment = {**os.environ, **process_variables(database), "PYTHONPATH": str(code)}
        with output.open("w") as file:
            self.process = subprocess.Popen(
                [sys.executable, *arguments],
                cwd=code,
                env=environment,
                stdin=subprocess.PIPE,
                stdout=file,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )

    @property
    def lines(self) -> list[str]:
        return self.output.read_text(errors="replace").splitlines()

    def says(self, text: str) -> None:
        def said() -> bool:
            assert self.process.poll() is None or any(text in line for line in self.lines), "\n".join(self.lines)
            return any(text in line for line in self.lines)

        wait_until(said, f"{self.output.name} says {text!r}", 120)

    def ends(self) -> int:
        """Closes its input, and returns its exit code."""
        if self.process.stdin is not None:
            self.process.stdin.close()
        return self.process.wait(120)

    def stops(self) -> int:
        """Asks it to stop, and returns its exit code."""
        self.process.terminate()
        return self.ends()
