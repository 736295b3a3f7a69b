"""The version that is still running elsewhere during a deployment: the last release."""

from __future__ import annotations

import shutil
from typing import TYPE_CHECKING

from django_pgqueue.functions import sql_files
from tests.support import history

if TYPE_CHECKING:
    from pathlib import Path

OLDER, THE_SAME = ("django_pgqueue", "sql"), ("tests", "example_project")


class OldVersion:
    """The released package below the tasks of today, which are the application: where there is no history, a copy."""

    def __init__(self, code: Path) -> None:
        self.code = code
        release = sql_files.releases()[-1]
        commit = history.commit_of(release)
        self._copy(*THE_SAME)
        if commit is not None:
            history.extract(commit, code, *OLDER)
            self.name = f"{release} ({commit[:7]})"
        else:
            self._copy(*OLDER)
            self._change_a_constant()
            self.name = f"a copy that differs in a constant, because the history with {release} is not here"

    def _copy(self, *names: str) -> None:
        for name in names:
            ignored = shutil.ignore_patterns("__pycache__", "node_modules", "spark")
            shutil.copytree(history.ROOT / name, self.code / name, ignore=ignored)

    def _change_a_constant(self) -> None:
        recorder = self.code / "django_pgqueue" / "worker" / "record" / "recorder.py"
        text = recorder.read_text()
        recorder.write_text(text.replace("RECORD_WITHIN_SECONDS = 0.02", "RECORD_WITHIN_SECONDS = 0.05"))
