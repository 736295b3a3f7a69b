"""Figures: named numbers of several runs, printed as medians beside the limit that was measured in the same runs."""

from __future__ import annotations

import json
import statistics
from dataclasses import asdict, dataclass, field, fields
from typing import TYPE_CHECKING, Any

from rich.table import Table

from tests.bench.meter import Costs

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from rich.console import Console

COST_NAMES = {
    "worker_us": "worker CPU, µs",
    "server_us": "PostgreSQL CPU, µs",
    "wal_bytes": "WAL, bytes",
    "commits": "commits",
    "dead_rows": "dead rows",
}


@dataclass(slots=True)
class Figure:
    """``limit`` names the figure of the same workload that bounds this one."""

    workload: str
    name: str
    unit: str
    limit: str | None = None
    values: list[float] = field(default_factory=list)
    costs: list[Costs] = field(default_factory=list)

    @property
    def median(self) -> float:
        return statistics.median(self.values)

    def cost(self, name: str) -> float | None:
        known = [value for costs in self.costs if (value := getattr(costs, name)) is not None]
        return statistics.median(known) if known else None


@dataclass(frozen=True, slots=True)
class Series:
    """Something over time, for a plot."""

    workload: str
    name: str
    x: str
    y: str
    points: list[tuple[float, float]]


class Figures:
    def __init__(self) -> None:
        self._figures: dict[tuple[str, str], Figure] = {}
        self.series: list[Series] = []
        self.notes: list[str] = []

    def add(
        self,
        workload: str,
        name: str,
        value: float,
        unit: str,
        *,
        limit: str | None = None,
        costs: Costs | None = None,
    ) -> None:
        figure = self._figures.setdefault((workload, name), Figure(workload, name, unit, limit))
        figure.values.append(value)
        if costs is not None:
            figure.costs.append(costs)

    def note(self, text: str) -> None:
        """Said once, under the table: why a peer is missing, how a figure is to be read."""
        if text not in self.notes:
            self.notes.append(text)

    def share(self, figure: Figure) -> float | None:
        """Of its limit: run by run, because a shared machine changes from minute to minute."""
        limit = self._figures.get((figure.workload, figure.limit or ""))
        if limit is None:
            return None
        shares = [value / bound for value, bound in zip(figure.values, limit.values, strict=False) if bound]
        return statistics.median(shares) if shares else None

    def show(self, console: Console, about: dict[str, Any]) -> None:
        console.print(" · ".join(f"{key} {value}" for key, value in about.items()))
        console.print(self.table())
        if any(figure.costs for figure in self._figures.values()):
            console.print(self.costs_table())
        for note in self.notes:
            console.print(f"* {note}", markup=False)

    def table(self) -> Table:
        table = table_of("what", "median", "min", "max", "unit", "of the limit")
        workload = ""
        for figure in self._figures.values():
            if figure.workload != workload:
                table.add_section()
                workload = figure.workload
            share = self.share(figure)
            numbers = [spelled(number) for number in numbers_of(figure)]
            told = "" if share is None else f"{share:.0%}"
            table.add_row(f"{figure.workload}: {figure.name}", *numbers, figure.unit, told)
        return table

    def costs_table(self) -> Table:
        table = table_of("for each job (medians)", *COST_NAMES.values())
        for figure in self._figures.values():
            if figure.costs:
                costs = [figure.cost(name) for name in COST_NAMES]
                table.add_row(f"{figure.workload}: {figure.name}", *["n/a" if c is None else spelled(c) for c in costs])
        return table

    def as_json(self, about: dict[str, Any]) -> dict[str, Any]:
        return {
            "about": about,
            "figures": [as_json(figure, self.share(figure)) for figure in self._figures.values()],
            "series": [asdict(series) for series in self.series],
            "notes": self.notes,
        }

    def write(self, path: Path, about: dict[str, Any]) -> None:
        path.write_text(json.dumps(self.as_json(about), indent=2) + "\n", encoding="utf-8")


def as_json(figure: Figure, share: float | None) -> dict[str, Any]:
    median, least, most = numbers_of(figure)
    costs = {cost.name: figure.cost(cost.name) for cost in fields(Costs)} if figure.costs else None
    return {
        "workload": figure.workload,
        "name": figure.name,
        "unit": figure.unit,
        "median": median,
        "min": least,
        "max": most,
        "values": figure.values,
        "limit": figure.limit,
        "of_the_limit": share,
        "costs_per_job": costs,
    }


def table_of(first: str, *others: str) -> Table:
    table = Table(show_edge=False)
    table.add_column(first)
    for name in others:
        table.add_column(name, justify="left" if name == "unit" else "right")
    return table


def numbers_of(figure: Figure) -> tuple[float, float, float]:
    return figure.median, min(figure.values), max(figure.values)


def spelled(number: float) -> str:
    return f"{number:,.{0 if abs(number) >= 100 else 1 if abs(number) >= 10 else 2}f}"


def percentile(values: Sequence[float], share: float) -> float:
    """The smallest value that at least this share of the values does not exceed.

    >>> percentile([4, 1, 3, 2], 0.5), percentile([4, 1, 3, 2], 0.99)
    (2, 4)
    """
    ordered = sorted(values)
    return ordered[max(0, min(len(ordered) - 1, -int(-share * len(ordered) // 1) - 1))]
