"""The machine, the versions and the settings that figures belong to."""

from __future__ import annotations

import os
import platform
from pathlib import Path
from typing import TYPE_CHECKING, Any

import django
import psycopg

if TYPE_CHECKING:
    from collections.abc import Mapping

SETTINGS = (
    "fsync",
    "synchronous_commit",
    "full_page_writes",
    "wal_level",
    "shared_buffers",
    "max_wal_size",
    "checkpoint_timeout",
    "autovacuum",
)


def about(connection: psycopg.Connection[Any], sizes: Mapping[str, Any]) -> dict[str, Any]:
    def setting(name: str) -> str:
        row = connection.execute("select current_setting(%s)", (name,)).fetchone()
        return str(row[0]) if row else ""

    return {
        "PostgreSQL": setting("server_version").split()[0],
        "Python": platform.python_version(),
        "Django": django.__version__,
        "psycopg": f"{psycopg.__version__} ({psycopg.pq.__impl__})",
        "processor": processor(),
        "cores": cores(),
        "memory": memory(),
        "system": f"{platform.system()} {platform.release()}",
        "load": load(),
        **{name: setting(name) for name in SETTINGS},
        **sizes,
    }


def cores() -> int:
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def processor() -> str:
    for line in lines("/proc/cpuinfo"):
        if line.startswith("model name"):
            return line.partition(":")[2].strip()
    return platform.machine()


def memory() -> str:
    for line in lines("/proc/meminfo"):
        if line.startswith("MemTotal"):
            return f"{int(line.split()[1]) / 1024**2:.0f} GB"
    return "?"


def load() -> str:
    """Who else works here: above nought before a run, the figures are too low."""
    return f"{os.getloadavg()[0]:.2f}"


def lines(path: str) -> list[str]:
    return Path(path).read_text().splitlines() if Path(path).exists() else []
