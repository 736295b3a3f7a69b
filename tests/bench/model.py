"""A model of workers and their database: how long messages wait before they begin.

A discrete-event simulation.  Messages arrive; worker processes with free slots claim what is there, in one statement a
batch; each job takes some of its process's CPU (one thread of a process computes at a time) and then its own time in a
slot.  Claims and ends take CPU of the database, which has a number of cores.  An idle process notices an arrival after
a pick-up time that is drawn from measured ones.
"""

from __future__ import annotations

import heapq
import itertools
import random
from collections import deque
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from django_pgqueue.worker.claim.prefetch import AHEAD_SECONDS, MAX_HELD

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence


@dataclass(frozen=True, slots=True, kw_only=True)
class Plant:
    """What there is; all times in seconds."""

    processes: int
    slots: int
    job_seconds: Sequence[float]
    """samples: how long a job takes in its slot"""
    pick_up_seconds: Sequence[float] = (0.001,)
    """samples: how soon an idle process begins a job"""
    worker_seconds: float = 0.0
    """CPU of the worker process for each job"""
    claim_seconds: float = 0.0
    """of the database for each claim, however large"""
    message_seconds: float = 0.0
    """of the database for each message, claim and end together"""
    cores: int = 1
    """of the database"""

    @property
    def job_mean(self) -> float:
        return sum(self.job_seconds) / len(self.job_seconds)

    @property
    def capacity(self) -> float:
        """Jobs a second at most: of the slots, of the processes' CPU, or of the database's, whichever ends first."""
        slots = self.processes * self.slots / max(1e-9, self.job_mean + self.worker_seconds)
        workers = self.processes / max(1e-9, self.worker_seconds)
        return min(slots, workers, self.cores / max(1e-9, self.message_seconds))

    @property
    def most_held(self) -> int:
        return min(MAX_HELD, max(self.slots, int(self.slots * AHEAD_SECONDS / max(1e-6, self.job_mean))))


@dataclass(slots=True)
class Process:
    free: int
    claiming: bool = False
    running: int = 0
    cpu_free_at: float = 0.0
    waiting: deque[tuple[int, float]] = field(default_factory=deque)

    @property
    def held(self) -> int:
        return len(self.waiting) + self.running


class Simulation:
    def __init__(self, plant: Plant, arrivals: Iterable[float], *, seed: int = 1) -> None:
        self.plant = plant
        self.random = random.Random(seed)
        self.processes = [Process(plant.slots) for _ in range(plant.processes)]
        self.cores = [0.0] * plant.cores
        self.ready: deque[tuple[int, float]] = deque()
        self.waits: dict[int, float] = {}
        self.events: list[tuple[float, int, Callable[[float], None]]] = []
        self.order = itertools.count()
        for number, at in enumerate(arrivals):
            self._at(at, lambda now, number=number: self._arrive(number, now))  # type: ignore[misc]

    def run(self) -> list[float]:
        """How long each message waited, in the order of the arrivals."""
        while self.events:
            now, _, happen = heapq.heappop(self.events)
            happen(now)
        return [self.waits[number] for number in sorted(self.waits)]

    def _arrive(self, number: int, now: float) -> None:
        self.ready.append((number, now))
        idle = [process for process in self.processes if not process.claiming and process.held == 0]
        some = idle or [process for process in self.processes if self._room(process)]
        if some:
            # A process that runs something looks every few milliseconds, as an idle one does.
            self._claim_after(self.random.choice(some), self.random.choice(self.plant.pick_up_seconds), now)

    def _room(self, process: Process) -> int:
        return 0 if process.claiming else max(0, self.plant.most_held - process.held)

    def _claim_after(self, process: Process, seconds: float, now: float) -> None:
        process.claiming = True
        self._at(now + seconds, lambda at: self._claim(process, at))

    def _claim(self, process: Process, now: float) -> None:
        room = max(0, self.plant.most_held - process.held)
        batch = [self.ready.popleft() for _ in range(min(room, len(self.ready)))]
        if not batch:
            process.claiming = False
            return
        done = self._database(now, self.plant.claim_seconds + len(batch) * self.plant.message_seconds)
        self._at(done, lambda at: self._claimed(process, batch, at))

    def _database(self, now: float, seconds: float) -> float:
        begin = max(now, heapq.heappop(self.cores))
        heapq.heappush(self.cores, begin + seconds)
        return begin + seconds

    def _claimed(self, process: Process, batch: list[tuple[int, float]], now: float) -> None:
        process.claiming = False
        process.waiting += batch
        self._fill_slots(process, now)
        self._refill(process, now)

    def _fill_slots(self, process: Process, now: float) -> None:
        while process.free and process.waiting:
            number, arrived = process.waiting.popleft()
            begin = max(now, process.cpu_free_at)
            process.cpu_free_at = begin + self.plant.worker_seconds
            process.free -= 1
            process.running += 1
            self.waits[number] = begin - arrived
            self._at(
                process.cpu_free_at + self.random.choice(self.plant.job_seconds), lambda at: self._end(process, at)
            )

    def _end(self, process: Process, now: float) -> None:
        process.free += 1
        process.running -= 1
        self._fill_slots(process, now)
        self._refill(process, now)

    def _refill(self, process: Process, now: float) -> None:
        enough = max(self.plant.slots, self.plant.most_held // 2)
        if self.ready and not process.claiming and process.held < enough:
            self._claim_after(process, 0.0, now)

    def _at(self, when: float, happen: Callable[[float], None]) -> None:
        heapq.heappush(self.events, (when, next(self.order), happen))


def poisson(rate: float, count: int, *, seed: int = 1) -> list[float]:
    """Arrivals that know nothing of each other."""
    chance = random.Random(seed)
    return list(itertools.accumulate(chance.expovariate(rate) for _ in range(count)))
