"""One run of the benchmark: where workloads find their sizes and put their figures."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tests.bench.figures import Figures
    from tests.bench.meter import Costs
    from tests.bench.sizes import Sizes


@dataclass(slots=True, kw_only=True)
class Bench:
    workload: str
    figures: Figures
    sizes: Sizes
    run: int
    peers: tuple[str, ...] = ()

    @property
    def first(self) -> bool:
        return self.run == 0

    def add(self, name: str, value: float, unit: str, *, limit: str | None = None, costs: Costs | None = None) -> None:
        self.figures.add(self.workload, name, value, unit, limit=limit, costs=costs)

    def rate(self, name: str, value: float, *, limit: str | None = None, costs: Costs | None = None) -> None:
        self.add(name, value, "/s", limit=limit, costs=costs)
