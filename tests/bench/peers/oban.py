"""Oban for Python, the free package."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

from oban import Oban, worker
from oban.schema import install

from tests.bench.peers.adapter import DATABASE_URL, PYTHON, AsyncAdapter, chunks
from tests.bench.tally import tally

if TYPE_CHECKING:
    from collections.abc import Sequence

LIMIT = 100
noted = tally()


@worker(queue="default")
class Noop:
    async def process(self, job: Any) -> None:
        noted.ran(job.args["number"])


class Peer(AsyncAdapter):
    configuration = f"oban start --queues default:{LIMIT}, uvloop; one process for each; jobs are kept for a day"

    async def open(self) -> None:  # type: ignore[override]
        self.pool = await Oban.create_pool(DATABASE_URL)
        self.oban = Oban(pool=self.pool)

    def install(self) -> None:
        self.runner.run(install(self.pool))

    def workers(self, processes: int) -> list[list[str]]:
        command = [PYTHON, "-m", "oban", "start", "--dsn", DATABASE_URL, "--queues", f"default:{LIMIT}"]
        return [[*command, "--log-level", "ERROR"]] * processes

    async def enqueue(self, number: int) -> Any:
        await self.oban.enqueue(Noop.new({"number": number}))  # type: ignore[attr-defined]

    async def bulk(self, numbers: Sequence[int]) -> Any:
        for chunk in chunks(numbers, 1_000):
            await self.oban.enqueue_many([Noop.new({"number": number}) for number in chunk])  # type: ignore[attr-defined]

    async def ahead(self, count: int) -> Any:
        later = datetime.now(UTC) + timedelta(days=1)
        for chunk in chunks(range(count), 1_000):
            jobs = [Noop.new({"number": -1}, scheduled_at=later, priority=0) for _ in chunk]  # type: ignore[attr-defined]
            await self.oban.enqueue_many(jobs)
