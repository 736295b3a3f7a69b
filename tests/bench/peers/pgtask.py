"""pgtask: coroutines, on a core in Rust."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

from pgtask import Client, EnqueueRequest, TaskRegistry, Worker

from tests.bench.peers.adapter import DATABASE_URL, PYTHON, STEPS, AsyncAdapter, chunks
from tests.bench.tally import tally

if TYPE_CHECKING:
    from collections.abc import Sequence

SLOTS = 32
BATCH = 1000


def work() -> None:
    noted = tally()
    registry = TaskRegistry()

    @registry.task("noop")
    async def noop(task: Any, number: int) -> None:
        for value in range(STEPS):

            async def step(value: int = value) -> int:
                return value

            await task.step(f"step-{value}", step)
        noted.ran(number)

    async def run() -> None:
        await Worker(DATABASE_URL, registry, concurrency=SLOTS, poll_interval=0.05).run()

    asyncio.run(run())


class Peer(AsyncAdapter):
    configuration = f"Worker(concurrency={SLOTS}, poll_interval=0.05); enqueue_many of {BATCH}"

    async def open(self) -> None:  # type: ignore[override]
        self.client = await Client.connect(DATABASE_URL)

    def install(self) -> None:
        self.runner.run(self.client.migrate())

    def workers(self, processes: int) -> list[list[str]]:
        return [[PYTHON, "-m", "tests.bench.peers.pgtask"]] * processes

    async def enqueue(self, number: int) -> Any:
        await self.client.enqueue(EnqueueRequest("noop", number))

    async def bulk(self, numbers: Sequence[int]) -> Any:
        for chunk in chunks(numbers, BATCH):
            await self.client.enqueue_many([EnqueueRequest("noop", number) for number in chunk])


if __name__ == "__main__":
    work()
