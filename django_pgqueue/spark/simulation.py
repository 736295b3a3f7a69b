"""Simulates recorded arrivals with other numbers of workers: plain Python, without Spark, one scenario at a time."""

from __future__ import annotations

import heapq
from collections import defaultdict
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterable


@dataclass(frozen=True, slots=True, kw_only=True)
class Scenario:
    """
    >>> str(Scenario(slots=8, load=2.0))
    '8 slots, load x 2'
    """

    slots: int
    """Messages that all workers together run at a time: processes times threads."""
    load: float = 1.0
    """Factor; 2 means the same arrivals in half the time."""
    channel_limit: int | None = None
    """Messages of one channel that run at a time."""

    def __post_init__(self) -> None:
        if self.slots < 1 or self.load <= 0 or (self.channel_limit is not None and self.channel_limit < 1):
            message = f"{self!r} is impossible: slots and limits must be 1 or more, and the load more than 0."
            raise ValueError(message)

    def __str__(self) -> str:
        limit = "" if self.channel_limit is None else f", {self.channel_limit} at a time a channel"
        return f"{self.slots} slots, load x {self.load:g}{limit}"


class SimulatedArrival(NamedTuple):
    """An attempt that became due.  Simulations expect the order of ``due_ms``."""

    due_ms: float
    run_ms: float
    priority: int = 0
    channel: str | None = None


class Simulation:
    """Slots that take the most urgent message that is due, as the queue does: by priority, then by time.

    A message over its channel's limit waits apart until another one of its channel has ended.
    """

    def __init__(self, scenario: Scenario) -> None:
        self.scenario = scenario
        self.ready: list[tuple[int, float, int, SimulatedArrival]] = []
        self.running: list[tuple[float, int, str | None]] = []
        self.busy: dict[str, int] = defaultdict(int)
        self.waiting: dict[str, list[tuple[int, float, int, SimulatedArrival]]] = defaultdict(list)
        self.waits_ms: list[float] = []
        """How long each arrival waited."""
        self.busy_ms = 0.0
        self.ended_ms = 0.0

    def run(self, arrivals: Iterable[SimulatedArrival]) -> None:
        for number, arrival in enumerate(arrivals):
            due = arrival.due_ms / self.scenario.load
            self._until(due)
            heapq.heappush(self.ready, (-arrival.priority, due, number, arrival))
            self._start(due)
        self._until(float("inf"))

    def _until(self, now: float) -> None:
        """Ends everything that is over at ``now``, and starts other messages in its place."""
        while self.running and self.running[0][0] <= now:
            end, _, channel = heapq.heappop(self.running)
            self.ended_ms = end
            if channel is not None:
                self.busy[channel] -= 1
                if self.waiting[channel]:
                    heapq.heappush(self.ready, heapq.heappop(self.waiting[channel]))
            self._start(end)

    def _start(self, now: float) -> None:
        while self.ready and len(self.running) < self.scenario.slots:
            entry = heapq.heappop(self.ready)
            _, due, number, arrival = entry
            channel = arrival.channel if self.scenario.channel_limit is not None else None
            if channel is not None:
                if self.busy[channel] >= (self.scenario.channel_limit or 0):
                    heapq.heappush(self.waiting[channel], entry)
                    continue
                self.busy[channel] += 1
            self.waits_ms.append(now - due)
            self.busy_ms += arrival.run_ms
            heapq.heappush(self.running, (now + arrival.run_ms, number, channel))


def simulate(arrivals: Iterable[SimulatedArrival], scenario: Scenario) -> Simulation:
    """Returns a simulation that has run, with its ``waits_ms``, ``busy_ms`` and ``ended_ms``.

    >>> simulate([SimulatedArrival(0, 10), SimulatedArrival(1, 10)], Scenario(slots=1)).waits_ms
    [0.0, 9.0]
    """
    simulation = Simulation(scenario)
    simulation.run(arrivals)
    return simulation
