"""Chancy, with its executor for async jobs."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

from chancy import Chancy, Job, Queue, job

from tests.bench.peers.adapter import DATABASE_URL, PYTHON, AsyncAdapter, chunks
from tests.bench.tally import tally

if TYPE_CHECKING:
    from collections.abc import Sequence

CONCURRENCY = 500
app = Chancy(DATABASE_URL)
noted = tally()


@job(queue="default")
async def noop(*, number: int) -> None:
    noted.ran(number)


class Peer(AsyncAdapter):
    configuration = (
        f"AsyncExecutor, concurrency={CONCURRENCY}, eager_polling, polling_interval=1; "
        "one process for each; jobs are kept"
    )

    async def open(self) -> None:  # type: ignore[override]
        await app.pool.open()

    def install(self) -> None:
        self.runner.run(self._install())

    async def _install(self) -> None:
        await app.migrate()
        await app.declare(
            Queue(
                name="default",
                concurrency=CONCURRENCY,
                executor=Chancy.Executor.Async,
                eager_polling=True,
                polling_interval=1,
            )
        )

    def workers(self, processes: int) -> list[list[str]]:
        program = str(Path(PYTHON).with_name("chancy"))
        return [[program, "--app", "tests.bench.peers.chancy.app", "worker", "start"]] * processes

    async def enqueue(self, number: int) -> Any:
        await app.push(noop.job.with_kwargs(number=number))

    async def bulk(self, numbers: Sequence[int]) -> Any:
        await self._push([noop.job.with_kwargs(number=number) for number in numbers])

    async def ahead(self, count: int) -> Any:
        later = datetime.now(UTC) + timedelta(days=1)
        for chunk in chunks(range(count), 10_000):
            one: Job = noop.job.with_kwargs(number=-1).with_priority(10).with_scheduled_at(later)
            await self._push([one for _ in chunk])

    async def _push(self, jobs: list[Job]) -> None:
        async for _ in app.push_many(jobs):
            pass
