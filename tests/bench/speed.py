"""How quick the machine is, second by second: the speed of a machine that others use, too, changes under a long run."""

from __future__ import annotations

import subprocess
import sys
import tempfile
import time
from contextlib import contextmanager
from statistics import median
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

EVERY_SECONDS = 1.0
TRIES = 3
STEPS = 50_000


def main() -> None:
    """Prints how many milliseconds of processor time a fixed loop takes, once a second.

    The best of some tries, because the first one finds a processor that has worked for others.  It is processor time:
    what others do on this machine's processors does not count, what they take from the processors themselves does.
    """
    while True:
        print(f"{time.monotonic()} {min(measured() for _ in range(TRIES)) * 1000}", flush=True)
        time.sleep(EVERY_SECONDS)


def measured() -> float:
    begun, total = time.thread_time(), 0
    for number in range(STEPS):
        total += number * number
    return time.thread_time() - begun


class Speed:
    """What was measured: (second of the monotonic clock, milliseconds)."""

    def __init__(self, measured: list[tuple[float, float]]) -> None:
        self.measured = measured

    def between(self, begun: float, ended: float) -> list[float]:
        return [milliseconds for at, milliseconds in self.measured if begun <= at < ended]

    def minutes(self, begun: float, ended: float) -> list[float]:
        """The median of each minute that begins at ``begun`` or after it; the last one may be short.

        >>> Speed([(0.5, 2.0), (1.5, 3.0), (59.0, 4.0), (61.0, 9.0)]).minutes(0, 100)
        [3.0, 9.0]
        """
        starts = range(int((ended - begun) // 60) + 1)
        found = (self.between(begun + 60 * n, min(ended, begun + 60 * (n + 1))) for n in starts)
        return [median(one) for one in found if one]


@contextmanager
def watched() -> Iterator[Speed]:
    """Measures in a process of its own while the block runs; what it found can be read after that."""
    speed = Speed([])
    # A file, not a pipe: nobody reads it meanwhile, and a full pipe would stop the measuring.
    with tempfile.TemporaryFile("w+") as output:
        with subprocess.Popen([sys.executable, "-m", __name__], stdout=output) as process:
            try:
                yield speed
            finally:
                process.terminate()
        output.seek(0)
        for line in output:
            at, milliseconds = line.split()
            speed.measured.append((float(at), float(milliseconds)))


if __name__ == "__main__":
    main()
