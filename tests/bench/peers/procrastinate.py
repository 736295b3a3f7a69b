"""Procrastinate, with an async task, for which its documentation allows concurrency."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from procrastinate import App, PsycopgConnector

from tests.bench.peers.adapter import DATABASE_URL, PYTHON, AsyncAdapter, chunks
from tests.bench.tally import tally

if TYPE_CHECKING:
    from collections.abc import Sequence

CONCURRENCY = 30
app = App(connector=PsycopgConnector(conninfo=DATABASE_URL))
noted = tally()


@app.task(name="noop")
async def noop(number: int) -> None:
    noted.ran(number)


class Peer(AsyncAdapter):
    configuration = (
        f"async task, PsycopgConnector, worker --concurrency {CONCURRENCY}; one process for each; jobs are kept"
    )

    async def open(self) -> None:  # type: ignore[override]
        await app.open_async()

    def install(self) -> None:
        self.runner.run(app.schema_manager.apply_schema_async())

    def workers(self, processes: int) -> list[list[str]]:
        command = [
            PYTHON,
            "-m",
            "procrastinate",
            "--app",
            "tests.bench.peers.procrastinate.app",
            "--log-level",
            "error",
        ]
        return [[*command, "worker", "--concurrency", str(CONCURRENCY)]] * processes

    async def enqueue(self, number: int) -> Any:
        await noop.defer_async(number=number)

    async def bulk(self, numbers: Sequence[int]) -> Any:
        for chunk in chunks(numbers, 1_000):
            await noop.batch_defer_async(*[{"number": number} for number in chunk])

    async def ahead(self, count: int) -> Any:
        later = noop.configure(schedule_in={"days": 1}, priority=10)
        for chunk in chunks(range(count), 1_000):
            await later.batch_defer_async(*[{"number": -1} for _ in chunk])
