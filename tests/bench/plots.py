"""Pictures of the figures: one a workload, and one for what was measured over time."""

from __future__ import annotations

from itertools import groupby
from typing import TYPE_CHECKING, Any

import matplotlib as mpl

if TYPE_CHECKING:
    from pathlib import Path

mpl.use("svg")


def draw(figures: dict[str, Any], folder: Path) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    for (workload, unit), found in groupby(sorted(figures["figures"], key=kind), key=kind):
        bars(list(found), f"{workload}, {unit}", folder / f"{workload}-{unit.replace('/', 'per-')}.svg")
    for workload, found in groupby(figures["series"], key=lambda series: series["workload"]):
        lines(list(found), workload, folder / f"{workload}-over-time.svg")


def kind(figure: dict[str, Any]) -> tuple[str, str]:
    return figure["workload"], figure["unit"]


def bars(figures: list[dict[str, Any]], title: str, path: Path) -> None:
    from matplotlib import pyplot as plt

    medians = [figure["median"] for figure in figures]
    below = [figure["median"] - figure["min"] for figure in figures]
    above = [figure["max"] - figure["median"] for figure in figures]
    picture, axes = plt.subplots(figsize=(9, 1 + 0.4 * len(figures)), layout="constrained")
    axes.barh([figure["name"] for figure in figures], medians, xerr=[below, above], capsize=3)
    axes.invert_yaxis()
    axes.set_title(f"{title}: median, and all runs")
    picture.savefig(path)
    plt.close(picture)


def lines(series: list[dict[str, Any]], title: str, path: Path) -> None:
    from matplotlib import pyplot as plt

    picture, axes = plt.subplots(figsize=(9, 4), layout="constrained")
    for one in series:
        axes.plot(*zip(*one["points"], strict=True), label=one["name"])
    axes.set(xlabel=series[0]["x"], ylabel=series[0]["y"], title=title, yscale="log")
    axes.legend()
    picture.savefig(path)
    plt.close(picture)
