"""PgQueuer, with the driver that its documentation begins with."""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING, Any

import asyncpg
import uvloop
from pgqueuer import PgQueuer
from pgqueuer.db import AsyncpgDriver
from pgqueuer.queries import Queries

from tests.bench.peers.adapter import DATABASE_URL, PYTHON, AsyncAdapter, chunks
from tests.bench.tally import tally

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pgqueuer.models import Job

BATCH = 1000


async def work() -> None:
    """What ``pgq run`` does; its own command fails in 1.6.0 with the newest typer."""
    noted = tally()
    queue = PgQueuer(AsyncpgDriver(await asyncpg.connect(DATABASE_URL)))

    @queue.entrypoint("noop")
    async def noop(job: Job) -> None:
        noted.ran(int(job.payload or -1))

    await queue.run(batch_size=BATCH)


class Peer(AsyncAdapter):
    configuration = f"asyncpg, uvloop, run(batch_size={BATCH}); one process for each; durable tables"

    async def open(self) -> None:  # type: ignore[override]
        self.queries = Queries(AsyncpgDriver(await asyncpg.connect(DATABASE_URL)))

    def install(self) -> None:
        self.runner.run(self.queries.install())

    def workers(self, processes: int) -> list[list[str]]:
        return [[PYTHON, "-m", "tests.bench.peers.pgqueuer"]] * processes

    async def enqueue(self, number: int) -> Any:
        await self.queries.enqueue("noop", str(number).encode())

    async def bulk(self, numbers: Sequence[int]) -> Any:
        for chunk in chunks(numbers, 10_000):
            count = len(chunk)
            await self.queries.enqueue(["noop"] * count, [str(n).encode() for n in chunk], [0] * count)

    async def ahead(self, count: int) -> Any:
        for chunk in chunks(range(count), 10_000):
            n = len(chunk)
            await self.queries.enqueue(["noop"] * n, [b"-1"] * n, [10] * n, [timedelta(days=1)] * n)


if __name__ == "__main__":
    uvloop.run(work())
