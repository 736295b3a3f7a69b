"""awa, by its Python package."""

from __future__ import annotations

import asyncio
import sys
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

from awa import AsyncClient

from tests.bench.peers.adapter import DATABASE_URL, PYTHON, AsyncAdapter, chunks
from tests.bench.tally import tally

if TYPE_CHECKING:
    from collections.abc import Sequence

SLOTS = 100


@dataclass
class Noop:
    number: int


async def work() -> None:
    noted = tally()
    client = AsyncClient(DATABASE_URL)

    @client.task(Noop, queue="default")
    async def noop(job: Any) -> None:
        noted.ran(job.args.number)

    await client.start([("default", SLOTS)])
    await asyncio.Event().wait()


class Peer(AsyncAdapter):
    configuration = f"AsyncClient.start([('default', {SLOTS})]), queue storage; one process for each; enqueue_many_copy"

    async def open(self) -> None:  # type: ignore[override]
        self.client = AsyncClient(DATABASE_URL)

    def install(self) -> None:
        self.runner.run(self._install())

    async def _install(self) -> None:
        await self.client.migrate()
        await self.client.install_queue_storage()

    def workers(self, processes: int) -> list[list[str]]:
        return [[PYTHON, "-m", "tests.bench.peers.awa"]] * processes

    async def enqueue(self, number: int) -> Any:
        await self.client.insert(Noop(number), queue="default")

    async def bulk(self, numbers: Sequence[int]) -> Any:
        for chunk in chunks(numbers, 10_000):
            await self.client.enqueue_many_copy([Noop(number) for number in chunk], queue="default")

    async def ahead(self, count: int) -> Any:
        later = datetime.now(UTC) + timedelta(days=1)
        for chunk in chunks(range(count), 10_000):
            jobs = [Noop(-1) for _ in chunk]
            await self.client.enqueue_many_copy(jobs, queue="default", priority=1, run_at=later)


if __name__ == "__main__":
    sys.exit(asyncio.run(work()))
