"""CPU seconds of processes and all their children, from /proc; None where there is none."""

from __future__ import annotations

import os
import re
from pathlib import Path

PROC = Path("/proc")
TICKS = os.sysconf("SC_CLK_TCK") if hasattr(os, "sysconf") else 100


def cpu_seconds(root: int | None) -> float | None:
    """Of the process, its living descendants, and all of theirs that have ended."""
    if root is None or not (PROC / str(root) / "stat").exists():
        return None
    seconds, children = stats()
    todo, total = [root], 0.0
    while todo:
        pid = todo.pop()
        total += seconds.get(pid, 0.0)
        todo += children.get(pid, [])
    return total


def memory_mb(root: int) -> float | None:
    """Of the process and its living descendants, shared pages divided among those that share them."""
    _, children = stats()
    todo, total = [root], 0
    while todo:
        pid = todo.pop()
        found = re.search(r"^Pss:\s+(\d+) kB", read(PROC / str(pid) / "smaps_rollup"), re.MULTILINE)
        if found is None:
            return None
        total += int(found[1])
        todo += children.get(pid, [])
    return total / 1024


def stats() -> tuple[dict[int, float], dict[int, list[int]]]:
    """What each process used, with its children that have ended; and who is whose child."""
    seconds: dict[int, float] = {}
    children: dict[int, list[int]] = {}
    for folder in PROC.iterdir():
        if folder.name.isdigit() and (parsed := parse(read(folder / "stat"))):
            parent, used = parsed
            seconds[int(folder.name)] = used
            children.setdefault(parent, []).append(int(folder.name))
    return seconds, children


def parse(stat: str) -> tuple[int, float] | None:
    """Parent and CPU seconds of a line of /proc/<pid>/stat; a program's name may hold blanks and brackets.

    >>> parse("42 (my (odd) name) S 7 42 42 0 -1 0 0 0 0 0 150 50 25 25 20 0 1 0 99")
    (7, 2.5)
    """
    fields = stat.rpartition(")")[2].split()
    return (int(fields[1]), sum(map(int, fields[11:15])) / TICKS) if len(fields) > 14 else None


def read(path: Path) -> str:
    try:
        return path.read_text()
    except OSError:  # it has ended meanwhile
        return ""


def name_and_parent(pid: int) -> tuple[str, int] | None:
    stat = read(PROC / str(pid) / "stat")
    parsed = parse(stat)
    return (stat[stat.index("(") + 1 : stat.rindex(")")], parsed[0]) if parsed else None


def postmaster(backend: int) -> int | None:
    """The server's first process, if that backend runs on this machine."""
    found = name_and_parent(backend)
    return found[1] if found and found[0].startswith("postgres") else None
