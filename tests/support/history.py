"""The code of a release, from the history of this repository."""

from __future__ import annotations

import io
import subprocess
import tarfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]


def commit_of(version: str) -> str | None:
    """Returns the commit that has listed the texts of a release; None where the history is not here."""
    listed = f"sql/released/{version}.txt"
    commits = (git("log", "--diff-filter=A", "--format=%H", "--", listed) or b"").decode().split()
    return commits[-1] if commits else None


def extract(commit: str, folder: Path, *names: str) -> None:
    """Writes these files and folders of the commit into ``folder``."""
    archive = git("archive", commit, *names)
    assert archive is not None, f"git archive {commit}"
    with tarfile.open(fileobj=io.BytesIO(archive)) as files:
        files.extractall(folder, filter="data")


def git(*words: str) -> bytes | None:
    """Returns what git prints; None if it fails, or is not here."""
    try:
        done = subprocess.run(["git", "-C", str(ROOT), *words], capture_output=True, check=False)
    except FileNotFoundError:
        return None
    return None if done.returncode else done.stdout
