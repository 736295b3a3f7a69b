"""Figures are told as they were measured."""

from __future__ import annotations

import io
import json
from typing import TYPE_CHECKING

import pytest
from rich.console import Console

from tests.bench.drain import segment_rates
from tests.bench.figures import Figures, percentile
from tests.bench.meter import Costs

if TYPE_CHECKING:
    from pathlib import Path


@pytest.fixture
def figures() -> Figures:
    found = Figures()
    for raw, worker in ((100.0, 50.0), (1000.0, 600.0), (400.0, 280.0)):
        found.add("drain", "raw", raw, "/s")
        found.add("drain", "worker", worker, "/s", limit="raw", costs=Costs(40.0, None, worker, 0.01, 2.0))
        found.add("other", "worker", worker, "/s", limit="raw")
    return found


def test_a_share_compares_figures_of_the_same_run(figures: Figures, tmp_path: Path) -> None:
    figures.write(tmp_path / "figures.json", {"cores": 2})
    written = json.loads((tmp_path / "figures.json").read_text())
    raw, worker, other = written["figures"]
    assert (worker["median"], worker["min"], worker["max"], worker["values"]) == (280, 50, 600, [50, 600, 280])
    assert worker["of_the_limit"] == 0.6  # of 50 %, 60 % and 70 %; the medians' would be 70 %
    assert raw["of_the_limit"] is None
    assert other["of_the_limit"] is None, "a limit of another workload is none"
    assert worker["costs_per_job"]["wal_bytes"] == 280
    assert worker["costs_per_job"]["server_us"] is None
    assert written["about"] == {"cores": 2}


def test_a_limit_of_zero_has_no_share(figures: Figures) -> None:
    figures.add("peers", "drain", 0.0, "/s")
    figures.add("peers", "drain behind others", 10.0, "/s", limit="drain")
    console = Console(file=io.StringIO(), width=140)
    figures.show(console, {})
    assert "drain behind others" in console.file.getvalue()  # type: ignore[attr-defined]


def test_the_table_notes_what_is_unknown(figures: Figures) -> None:
    figures.note("The peer [green] is missing.")
    figures.note("The peer [green] is missing.")
    console = Console(file=io.StringIO(), width=140)
    figures.show(console, {"cores": 2})
    told = console.file.getvalue()  # type: ignore[attr-defined]
    assert "60%" in told
    assert "n/a" in told
    assert told.count("The peer [green] is missing.") == 1


def test_a_percentile_is_one_of_the_values() -> None:
    values = list(range(1, 101))
    assert [percentile(values, share) for share in (0.5, 0.95, 0.99, 1.0)] == [50, 95, 99, 100]
    assert percentile([7.0], 0.99) == 7.0


def test_segments_are_timed_where_they_end() -> None:
    assert segment_rates([(0, 0.0), (50, 1.0), (150, 3.0), (200, 4.0)], 100) == [50.0, 50.0]
    assert segment_rates([(0, 0.0), (250, 5.0)], 100) == [50.0, 50.0], "one look may see several edges"
    assert segment_rates([(0, 0.0), (99, 1.0)], 100) == []
