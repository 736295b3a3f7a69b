"""Keeps the generator and the tormentor together: the jobs are spread over the faults, and the queue stays short.

With a time for all of it, both are spread over that time.  A calm goes at the same rate, and has no faults.
"""

from __future__ import annotations

import threading
import time

MAX_WAITING = 3000
CALM_RATE = 100.0
"""Jobs a second while it is calm, where no time says how many there are in the storm."""
CATCH_UP = 1.2
"""Times the rate, when some were left out because the server was away."""
BURST = 60.0
REST, CALM, STORM = "rest", "calm", "storm"


class Pace:
    def __init__(self, jobs: int, faults: int, seconds: float = 0.0) -> None:
        self.jobs, self.faults, self.seconds = jobs, faults, seconds
        self.rate = jobs / seconds if seconds else CALM_RATE
        self.jobs_done = self.faults_done = 0
        self.waiting = 0
        """How many messages were in the queue at the last look."""
        self.phase = REST
        self._lock = threading.Lock()
        self._began = self._looked = time.monotonic()
        self._jobs, self._budget = 0, 0.0

    def begin(self, phase: str) -> None:
        with self._lock:
            self.phase = phase
            self._began = self._looked = time.monotonic()
            self._jobs, self._budget = 0, 0.0

    def enqueued(self, count: int) -> None:
        with self._lock:
            self.jobs_done += count if self.phase == STORM else 0
            self.waiting += count
            self._jobs += count
            self._budget -= count

    def fault_is_over(self) -> None:
        with self._lock:
            self.faults_done += 1

    @property
    def is_enough(self) -> bool:
        """Where there is a time, jobs come as long as there are faults."""
        return self.jobs_done >= self.jobs and (not self.seconds or self.faults_done >= self.faults)

    def may_enqueue(self) -> bool:
        if self.phase == REST or self.waiting >= MAX_WAITING:
            return False
        if self.phase == CALM or self.seconds:
            return self._is_time()
        ahead = self.jobs_done / self.jobs - self.faults_done / self.faults
        return not self.is_enough and ahead < 0.02 + 1000 / self.jobs

    def _is_time(self) -> bool:
        with self._lock:
            now = time.monotonic()
            self._budget = min(BURST, self._budget + CATCH_UP * self.rate * (now - self._looked))
            self._looked = now
            return self._budget > 0 and self._jobs < self.rate * (now - self._began)

    def may_torment(self) -> bool:
        if self.seconds:
            return self.faults_done / self.faults <= (time.monotonic() - self._began) / self.seconds
        ahead = self.faults_done / self.faults - self.jobs_done / self.jobs
        return self.jobs_done >= self.jobs or ahead < 0.01 + 2 / self.faults
