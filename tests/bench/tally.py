"""Where jobs note that they have run: shared memory, so that counting costs a job next to nothing.

Standard library only: jobs of other queues import it, too, in environments of their own.
"""

from __future__ import annotations

import fcntl
import mmap
import os
import threading
import time
from pathlib import Path

VARIABLE = "PGQUEUE_BENCH_TALLY"
THREADS = 2048
HEADER = 8
WIDTH = 16
"""Each thread has a place of its own, with two numbers: how many jobs it ran, and when the last one did."""
MARKS = HEADER + THREADS * WIDTH
"""Behind them, for each number of a job: when it began."""


class Tally:
    """Times are those of the monotonic clock in nanoseconds, which all processes of a machine share."""

    def __init__(self, path: str | Path) -> None:
        self.path = Path(path)
        self._file = os.open(self.path, os.O_RDWR)
        self._cells = memoryview(mmap.mmap(self._file, 0)).cast("q")
        self._marks = len(self._cells) - MARKS // 8
        self._local = threading.local()

    @classmethod
    def create(cls, path: str | Path, marks: int = 0) -> Tally:
        with Path(path).open("wb") as file:
            file.truncate(MARKS + 8 * marks)
        return cls(path)

    def ran(self, number: int = -1) -> None:
        """Said by a job when it begins."""
        now = time.monotonic_ns()
        cells = self._cells
        try:
            place, pid = self._local.place
        except AttributeError:
            place, pid = self._claim()
        if pid != os.getpid():  # a fork: the place belongs to the parent
            place, pid = self._claim()
        if 0 <= number < self._marks:
            cells[MARKS // 8 + number] = now
        cells[place + 1] = now
        cells[place] += 1

    @property
    def count(self) -> int:
        return sum(self._cells[1 : self._used() : 2])

    @property
    def last(self) -> int:
        """When the last job began."""
        return max(self._cells[2 : self._used() : 2], default=0)

    def marks(self) -> list[int]:
        """When each job began; 0: not yet."""
        return self._cells[MARKS // 8 :].tolist()

    def _used(self) -> int:
        return 1 + 2 * self._cells[0]

    def _claim(self) -> tuple[int, int]:
        fcntl.lockf(self._file, fcntl.LOCK_EX)  # between processes; between threads the interpreter's own lock
        with _claiming:
            taken = self._cells[0]
            if taken >= THREADS:
                message = f"more than {THREADS} threads ran jobs"
                raise RuntimeError(message)
            self._cells[0] = taken + 1
        fcntl.lockf(self._file, fcntl.LOCK_UN)
        place = (1 + 2 * taken, os.getpid())
        self._local.place = place
        return place


_claiming = threading.Lock()


class NoTally:
    """Outside of a measurement a job says it to nobody."""

    def ran(self, number: int = -1) -> None:
        pass


def tally() -> Tally | NoTally:
    """The one that the environment names."""
    return Tally(os.environ[VARIABLE]) if VARIABLE in os.environ else NoTally()
