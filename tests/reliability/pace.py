"""Keeps the generator and the tormentor together: the jobs are spread over the faults, and the queue stays short."""

from __future__ import annotations

import threading

MOST_WAITING = 3000


class Pace:
    def __init__(self, jobs: int, faults: int) -> None:
        self.jobs, self.faults = jobs, faults
        self.jobs_done = self.faults_done = 0
        self.waiting = 0
        """How many messages were in the queue at the last look."""
        self._lock = threading.Lock()

    def enqueued(self, count: int) -> None:
        with self._lock:
            self.jobs_done += count
            self.waiting += count

    def fault_is_over(self) -> None:
        with self._lock:
            self.faults_done += 1

    def enough(self, jobs: int) -> bool:
        return self.jobs_done >= jobs

    def may_enqueue(self) -> bool:
        ahead = self.jobs_done / self.jobs - self.faults_done / self.faults
        return self.waiting < MOST_WAITING and ahead < 0.02 + 1000 / self.jobs

    def may_torment(self) -> bool:
        ahead = self.faults_done / self.faults - self.jobs_done / self.jobs
        return ahead < 0.01 + 2 / self.faults
