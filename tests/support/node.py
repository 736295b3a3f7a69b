"""Node with the package pg, by which JavaScript speaks to PostgreSQL: npm installs it once for a checkout."""

from __future__ import annotations

import fcntl
import os
import shutil
import subprocess
from functools import cache
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
NODE, NPM = shutil.which("node"), shutil.which("npm")
FOLDER = ROOT / ".node"
PG = "pg@8"
INSTALL = "install --no-audit --no-fund --ignore-scripts --no-package-lock"
RETRY = "--fetch-retries 1 --fetch-retry-mintimeout 1000"


def environment() -> dict[str, str]:
    paths = [str(FOLDER / "node_modules"), os.environ.get("NODE_PATH", "")]
    return {**os.environ, "NODE_PATH": os.pathsep.join(filter(None, paths))}


@cache
def reason_without_pg() -> str:
    """Says why JavaScript cannot speak to PostgreSQL here; empty: it can."""
    if NODE is None:
        return "node is not installed"
    FOLDER.mkdir(exist_ok=True)
    with (FOLDER / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if _has_pg():
            return ""
        if NPM is None:
            return "node has no package pg, and npm, which would install it, is missing"
        words = [NPM, *INSTALL.split(), *RETRY.split(), "--prefix", str(FOLDER), PG]
        try:
            ran = subprocess.run(words, capture_output=True, text=True, check=False, timeout=120)
        except subprocess.TimeoutExpired:
            return "npm could not install the package pg in two minutes"
    said = (ran.stderr or ran.stdout).strip().splitlines()
    return "" if ran.returncode == 0 and _has_pg() else f"npm could not install the package pg: {' '.join(said)[:300]}"


def _has_pg() -> bool:
    words = [str(NODE), "-e", "require('pg')"]
    return subprocess.run(words, capture_output=True, check=False, timeout=60, env=environment()).returncode == 0
