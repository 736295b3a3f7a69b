"""When a worker process has done enough and a fresh one should take its place."""

from __future__ import annotations

import resource
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from django_pgqueue.worker.settings import WorkerSettings

EXIT_CODE = 75
"""By which the supervisor knows that a process left on purpose."""
LOOK_EVERY_SECONDS = 2.0
PAGE_BYTES = resource.getpagesize()


class Recycling:
    def __init__(self, settings: WorkerSettings) -> None:
        self.max_jobs = settings.max_jobs
        self.max_memory_mb = settings.max_memory_mb
        self.reason: str | None = None
        self._next_look = 0.0

    def consider(self, jobs: int) -> None:
        """Looks at what this process has done and uses."""
        if self.max_jobs is not None and jobs >= self.max_jobs:
            self.reason = f"{jobs} jobs done"
        now = time.monotonic()
        if self.max_memory_mb is not None and now >= self._next_look:
            self._next_look = now + LOOK_EVERY_SECONDS
            used_mb = memory_bytes() // 2**20
            if used_mb > self.max_memory_mb:
                self.reason = f"{used_mb} MB of memory in use"

    def room(self, jobs: int) -> int:
        """How many more it may take that has done, or holds, so many."""
        return sys.maxsize if self.max_jobs is None else max(0, self.max_jobs - jobs)

    def timed_out(self, message_id: int) -> None:
        """A thread can not be stopped, so the process has to go."""
        self.reason = f"the task of message {message_id} went on after its timeout"


def memory_bytes() -> int:
    """What this process uses now, or where the system does not say, the most that it used."""
    try:
        return int(Path("/proc/self/statm").read_text(encoding="ascii").split()[1]) * PAGE_BYTES
    except OSError:
        most = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        return most if sys.platform == "darwin" else most * 1024
