"""How much memory a command and the processes that it starts have, while they run."""

from __future__ import annotations

import os
import threading
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

PAGE = os.sysconf("SC_PAGE_SIZE")
EVERY_SECONDS = 0.5
ENDED = {"Z", "X"}
"""States of processes that nobody has waited for yet."""


class Sample(NamedTuple):
    java: int
    """Bytes of the JVM: resident, as in what follows."""
    driver: int
    """Of the process that was started."""
    worker: int
    """Of the largest Python process of Spark's."""
    total: int
    """Of all processes together; pages that they share count for each."""


class Process(NamedTuple):
    number: int
    name: str
    parent: int
    session: int
    resident: int


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
    running = list(processes())
    parents = {each.number: each.parent for each in running}
    ours = [each for each in running if descends(each.number, process, parents)]
    workers = [each for each in ours if each.name.startswith("python") and each.number != process]
    return Sample(
        java=largest(each for each in ours if each.name == "java"),
        driver=largest(each for each in ours if each.number == process),
        worker=largest(workers),
        total=sum(each.resident for each in ours),
    )


def largest(processes: Iterable[Process]) -> int:
    return max((each.resident for each in processes), default=0)


def processes() -> Iterator[Process]:
    """All processes of this machine that have not ended."""
    for folder in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):
            before, _, after = (folder / "stat").read_text().rpartition(")")
            words = after.split()
            if words[0] not in ENDED:
                name = before.partition("(")[2]
                yield Process(int(folder.name), name, int(words[1]), int(words[3]), int(words[21]) * PAGE)


def descends(number: int, ancestor: int, parents: dict[int, int]) -> bool:
    while number and number != ancestor:
        number = parents.get(number, 0)
    return number == ancestor
