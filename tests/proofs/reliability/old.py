"""The version that is still running elsewhere during a deployment: an older one of this repository."""

from __future__ import annotations

import io
import shutil
import subprocess
import tarfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[3]
COMMIT = "244895f45eac"
"""The first one that calls the SQL functions as they are now, before any release promised them."""
OLDER, THE_SAME = ("django_pgqueue", "sql"), ("tests", "example_project")


class OldVersion:
    """An older package below the tasks of today, which are the application: where there is no history, a copy."""

    def __init__(self, code: Path) -> None:
        self.code = code
        ignored = shutil.ignore_patterns("__pycache__", "node_modules", "spark")
        for name in THE_SAME:
            shutil.copytree(ROOT / name, code / name, ignore=ignored)
        archive = self._git("archive", COMMIT, *OLDER)
        if archive is not None:
            with tarfile.open(fileobj=io.BytesIO(archive)) as files:
                files.extractall(code, filter="data")
            told = self._git("log", "-1", "--format=%h of %cs, %s", COMMIT) or b""
            self.name = told.decode().strip()
        else:
            for name in OLDER:
                shutil.copytree(ROOT / name, code / name, ignore=ignored)
            self._change_a_constant()
            self.name = f"a copy that differs in a constant, for there is no commit {COMMIT} here"

    def _git(self, *words: str) -> bytes | None:
        try:
            done = subprocess.run(["git", "-C", str(ROOT), *words], capture_output=True, check=False)
        except FileNotFoundError:
            return None
        return None if done.returncode else done.stdout

    def _change_a_constant(self) -> None:
        recorder = self.code / "django_pgqueue" / "worker" / "record" / "recorder.py"
        text = recorder.read_text()
        recorder.write_text(text.replace("RECORD_WITHIN_SECONDS = 0.02", "RECORD_WITHIN_SECONDS = 0.05"))
