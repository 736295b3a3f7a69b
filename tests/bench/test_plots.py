"""Plots show what was measured; they need the dependency group bench-plots."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.bench.figures import Figures, Series

if TYPE_CHECKING:
    from pathlib import Path


def test_each_workload_and_what_was_measured_over_time_is_drawn(tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    from tests.bench import plots

    figures = Figures()
    for value in (900.0, 1000.0, 1200.0):
        figures.add("drain", "no-op tasks", value, "/s")
        figures.add("pick-up", "p50", value / 1000, "ms")
    figures.series.append(Series("mixed", "p99", "second", "ms", [(0, 1.5), (1, 2.5)]))
    plots.draw(figures.as_json({}), tmp_path)
    drawn = {path.name: path.read_text() for path in tmp_path.iterdir()}
    assert set(drawn) == {"drain-per-s.svg", "pick-up-ms.svg", "mixed-over-time.svg"}
    assert all("<svg" in text for text in drawn.values())
