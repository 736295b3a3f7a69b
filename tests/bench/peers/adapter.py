"""One other queue, as its own documentation advises: what an adapter is, and the program that runs one.

    <the peer's python> -m tests.bench.peers.adapter <module> <command> [arguments]

Commands print one line of JSON.  Standard library only, and no import of the project: this runs where only the peer is
installed.
"""

from __future__ import annotations

import asyncio
import importlib
import json
import os
import sys
import time
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

DATABASE_URL = os.environ.get("DATABASE_URL", "")
REDIS_URL = os.environ.get("REDIS_URL", "")
PYTHON = sys.executable
STEPS = int(os.environ.get("PGQUEUE_BENCH_STEPS", "0"))
"""Of each job: 0 measures a queue, more measure workflows."""


class Adapter:
    """Of a peer whose calls are plain functions.  A method that is not defined is not measured."""

    configuration = ""
    """What was set, for the reader of the figures"""

    def __init__(self) -> None:
        self.open()

    def open(self) -> None:
        """Connects."""

    def install(self) -> None:
        """Makes the tables in an empty database."""

    def workers(self, processes: int) -> list[list[str]]:
        """The commands that run so many worker processes."""
        raise NotImplementedError

    def enqueue(self, number: int) -> Any:
        raise NotImplementedError

    def bulk(self, numbers: Sequence[int]) -> Any:
        raise NotImplementedError

    def ahead(self, count: int) -> Any:
        """Enqueues messages that become due tomorrow, of a higher priority where there are priorities."""
        raise NotImplementedError

    # What the commands are

    def one_by_one(self, seconds: float) -> float:
        """Jobs a second; some connect with their first call, which is not measured."""
        self.enqueue(-1)
        begun, count = time.monotonic(), 0
        while (passed := time.monotonic() - begun) < seconds:
            self.enqueue(-1)
            count += 1
        return count / passed

    def fill(self, count: int, first: int = 0) -> float:
        """Seconds."""
        begun = time.monotonic()
        self.bulk(range(first, first + count))
        return time.monotonic() - begun

    def put_ahead(self, count: int) -> None:
        self.ahead(count)

    def singly(self, count: int, gap_seconds: float) -> list[int]:
        """When the enqueue of each job had come back, by the monotonic clock in nanoseconds."""
        committed = []
        for number in range(count):
            time.sleep(gap_seconds)
            self.enqueue(number)
            committed.append(time.monotonic_ns())
        return committed


class AsyncAdapter(Adapter):
    """Of a peer whose calls are coroutines: all in one event loop."""

    def __init__(self) -> None:
        self.runner = asyncio.Runner()
        self.runner.run(self.open())

    async def open(self) -> None:  # type: ignore[override]
        """Connects."""

    async def enqueue(self, number: int) -> Any:
        raise NotImplementedError

    async def bulk(self, numbers: Sequence[int]) -> Any:
        raise NotImplementedError

    async def ahead(self, count: int) -> Any:
        raise NotImplementedError

    def one_by_one(self, seconds: float) -> float:
        async def work() -> float:
            await self.enqueue(-1)
            begun, count = time.monotonic(), 0
            while (passed := time.monotonic() - begun) < seconds:
                await self.enqueue(-1)
                count += 1
            return count / passed

        return self.runner.run(work())

    def fill(self, count: int, first: int = 0) -> float:
        begun = time.monotonic()
        self.runner.run(self.bulk(range(first, first + count)))
        return time.monotonic() - begun

    def put_ahead(self, count: int) -> None:
        self.runner.run(self.ahead(count))

    def singly(self, count: int, gap_seconds: float) -> list[int]:
        async def work() -> list[int]:
            committed = []
            for number in range(count):
                await asyncio.sleep(gap_seconds)
                await self.enqueue(number)
                committed.append(time.monotonic_ns())
            return committed

        return self.runner.run(work())


def chunks(numbers: Sequence[int], size: int) -> list[Sequence[int]]:
    return [numbers[at : at + size] for at in range(0, len(numbers), size)]


def main(module: str, command: str, *arguments: str) -> None:
    adapter: Adapter = importlib.import_module(f"tests.bench.peers.{module}").Peer()
    offered: dict[str, Callable[..., Any]] = {
        "configuration": lambda: adapter.configuration,
        "install": adapter.install,
        "workers": adapter.workers,
        "one_by_one": adapter.one_by_one,
        "fill": adapter.fill,
        "ahead": adapter.put_ahead,
        "singly": adapter.singly,
    }
    try:
        answer = offered[command](*[json.loads(argument) for argument in arguments])
    except NotImplementedError:
        answer = {"not supported": command}
    print(json.dumps(answer), flush=True)
    os._exit(0)  # without waiting for the pools and threads of whoever it is


if __name__ == "__main__":
    main(*sys.argv[1:])
