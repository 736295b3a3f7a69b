"""Go with the package pq, by which it speaks to PostgreSQL: Debian has both."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

GO = shutil.which("go")
PACKAGES = Path("/usr/share/gocode")
"""Where Debian puts packages of Go."""
BUILT = {"GO111MODULE": "off", "GOPATH": str(PACKAGES), "CGO_ENABLED": "0"}


def reason_without_pq() -> str:
    """Says why Go cannot speak to PostgreSQL here; empty: it can."""
    if GO is None:
        return "go is not installed: apt install golang-go"
    found = (PACKAGES / "src" / "github.com" / "lib" / "pq").is_dir()
    return "" if found else "go has no package pq: apt install golang-github-lib-pq-dev"


def built(source: Path) -> Path:
    program = source.with_suffix("")
    command = [str(GO), "build", "-o", str(program), str(source)]
    subprocess.run(command, env={**os.environ, **BUILT}, check=True, timeout=200)
    return program
