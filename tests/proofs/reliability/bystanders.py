"""How long those jobs waited that no fault aimed at: in a calm, beside faults, and while nobody could work."""

from __future__ import annotations

import math
from bisect import bisect_right
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from tests.proofs.reliability.log import Log, Spell

AFTERMATH_SECONDS = 5.0
"""So long after PostgreSQL is back, or can be written to again, work may take to go on (invariants.py)."""


@dataclass(slots=True)
class Waits:
    """In seconds, from the moment that somebody asks for a job until its task begins."""

    calm: list[float] = field(default_factory=list)
    beside_faults: list[float] = field(default_factory=list)
    """No fault was there that stops everybody, from the call until the beginning; others may have been."""
    while_nobody_could_work: list[float] = field(default_factory=list)
    worst: list[tuple[float, list[str]]] = field(default_factory=list)
    """Of those beside faults, with what there was meanwhile."""
    refused: list[str] = field(default_factory=list)
    """Enqueues that failed beside faults."""
    refused_while_nobody_could_work: int = 0


def waits(log: Log) -> Waits:
    found = Waits()
    began = first_runs(log)
    stopped = Spans((spell.began, spell.over + AFTERMATH_SECONDS) for spell in log.spells if spell.stops_everybody)
    beside: list[tuple[float, float]] = []
    for token, asked in log.bystanders:
        if token not in began:
            continue  # lost, which is looked for elsewhere
        waited = began[token] - asked
        if any(start <= asked < end for start, end in log.calms):
            found.calm.append(waited)
        elif stopped.meet(asked, began[token]):
            found.while_nobody_could_work.append(waited)
        else:
            found.beside_faults.append(waited)
            beside.append((waited, asked))
    for waited, asked in sorted(beside, reverse=True)[:50]:
        found.worst.append((round(waited, 4), sorted(meanwhile(log.spells, asked, asked + waited))))
    for asked, failed, why in log.refused:
        if stopped.meet(asked, failed):
            found.refused_while_nobody_could_work += 1
        else:
            found.refused.append(why)
    return found


def first_runs(log: Log) -> dict[int, float]:
    """By token."""
    began: dict[int, float] = {}
    for run in log.runs:
        began[run.token] = min(run.at, began.get(run.token, run.at))
    return began


class Spans:
    """Stretches of time, which may overlap."""

    def __init__(self, spans: Iterable[tuple[float, float]]) -> None:
        self.merged: list[tuple[float, float]] = []
        for began, over in sorted(spans):
            if self.merged and began <= self.merged[-1][1]:
                self.merged[-1] = (self.merged[-1][0], max(over, self.merged[-1][1]))
            else:
                self.merged.append((began, over))

    def meet(self, began: float, over: float) -> bool:
        """Whether one of them has a moment in common with that stretch."""
        before = bisect_right(self.merged, (over, math.inf)) - 1
        return before >= 0 and self.merged[before][1] >= began


def meanwhile(spells: Iterable[Spell], began: float, over: float) -> Iterator[str]:
    return (spell.name for spell in spells if spell.began <= over and spell.over >= began)


def percentile(values: list[float], percent: float) -> float | None:
    """The smallest value that so many of the others do not exceed."""
    return sorted(values)[max(0, math.ceil(len(values) * percent / 100) - 1)] if values else None
