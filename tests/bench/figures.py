"""Figures: named numbers of several runs, printed as medians beside the limit that was measured in the same runs."""

from __future__ import annotations

import json
import platform
import statistics
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import django
import psycopg
from rich.table import Table

if TYPE_CHECKING:
    from rich.console import Console


@dataclass(slots=True)
class Figure:
    name: str
    unit: str
    limit: str | None = None
    """The figure that bounds this one: the same work by a raw SQL loop."""
    values: list[float] = field(default_factory=list)

    @property
    def median(self) -> float:
        return statistics.median(self.values)


class Figures:
    def __init__(self) -> None:
        self._figures: dict[str, Figure] = {}

    def add(self, name: str, value: float, unit: str, *, limit: str | None = None) -> None:
        self._figures.setdefault(name, Figure(name, unit, limit)).values.append(value)

    def show(self, console: Console, about: dict[str, Any]) -> None:
        console.print(" · ".join(f"{key} {value}" for key, value in about.items()))
        table = Table(show_edge=False)
        for column, justify in (("what", "left"), ("median", "right"), ("min", "right"), ("max", "right")):
            table.add_column(column, justify=justify)  # type: ignore[arg-type]
        table.add_column("unit")
        table.add_column("of the limit", justify="right")
        for figure in self._figures.values():
            limit = self._figures.get(figure.limit or "")
            share = "" if limit is None else f"{figure.median / limit.median:.0%}"
            numbers = [f"{number:,.{decimals(number)}f}" for number in numbers_of(figure)]
            table.add_row(figure.name, *numbers, figure.unit, share)
        console.print(table)

    def write(self, path: Path, about: dict[str, Any]) -> None:
        figures = [
            {"name": f.name, "unit": f.unit, "limit": f.limit, "median": f.median, "values": f.values}
            for f in self._figures.values()
        ]
        path.write_text(json.dumps({"about": about, "figures": figures}, indent=2) + "\n", encoding="utf-8")


def numbers_of(figure: Figure) -> tuple[float, float, float]:
    return figure.median, min(figure.values), max(figure.values)


def decimals(number: float) -> int:
    return 0 if number >= 100 else 2


def about(connection: psycopg.Connection[Any]) -> dict[str, Any]:
    """The machine, the versions and the settings that the figures belong to."""

    def setting(name: str) -> str:
        row = connection.execute("select current_setting(%s)", (name,)).fetchone()
        return str(row[0]) if row else ""

    return {
        "PostgreSQL": setting("server_version").split()[0],
        "Python": platform.python_version(),
        "Django": django.__version__,
        "psycopg": psycopg.__version__,
        "cores": cores(),
        "load": f"{Path('/proc/loadavg').read_text().split()[0] if Path('/proc/loadavg').exists() else '?'}",
        **{name: setting(name) for name in ("fsync", "synchronous_commit", "shared_buffers")},
    }


def cores() -> int:
    import os

    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
