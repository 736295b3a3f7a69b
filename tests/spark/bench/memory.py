"""How much memory a command and the processes that it starts have, while they run."""

from __future__ import annotations

import os
import threading
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

PAGE = os.sysconf("SC_PAGE_SIZE")
EVERY_SECONDS = 0.5


class Sample(NamedTuple):
    java: int
    """Bytes of the JVM: resident, as in what follows."""
    python: int
    """Of the largest Python process."""
    total: int
    """Of all processes together; pages that they share count for each."""


class Memory(threading.Thread):
    """Looks at a process and its descendants until it is told to stop."""

    def __init__(self, process: int) -> None:
        super().__init__(daemon=True)
        self.process = process
        self.samples: list[Sample] = []
        self.enough = threading.Event()

    def run(self) -> None:
        while not self.enough.wait(EVERY_SECONDS):
            self.samples.append(sample(self.process))

    def stop(self) -> None:
        self.enough.set()
        self.join()

    def peaks(self, parts: int) -> list[Sample]:
        """The largest of each of so many equal parts of the time."""
        size = max(1, -(-len(self.samples) // parts))
        cut = [self.samples[start : start + size] for start in range(0, len(self.samples), size)]
        return [Sample(*map(max, zip(*part, strict=True))) for part in cut]


def sample(process: int) -> Sample:
    parents, resident, names = {}, {}, {}
    for folder in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):
            before, _, after = (folder / "stat").read_text().rpartition(")")
            number = int(folder.name)
            words = after.split()
            parents[number], resident[number] = int(words[1]), int(words[21]) * PAGE
            names[number] = before.partition("(")[2]
    ours = [number for number in parents if descends(number, process, parents)]
    java = max((resident[number] for number in ours if names[number] == "java"), default=0)
    python = max((resident[number] for number in ours if names[number].startswith("python")), default=0)
    return Sample(java, python, sum(resident[number] for number in ours))


def descends(number: int, ancestor: int, parents: dict[int, int]) -> bool:
    while number and number != ancestor:
        number = parents.get(number, 0)
    return number == ancestor
