"""Huey with its storage in PostgreSQL."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from huey import PostgresHuey

from tests.bench.peers.adapter import DATABASE_URL, PYTHON, Adapter
from tests.bench.tally import tally

if TYPE_CHECKING:
    from collections.abc import Sequence

THREADS = 4
queue = PostgresHuey("bench", dsn=DATABASE_URL, results=False, create_tables=False)
noted = tally()


@queue.task(name="noop")
def noop(number: int) -> None:
    noted.ran(number)


class Peer(Adapter):
    configuration = f"PostgresHuey, results off, {THREADS} worker threads for each process (-k thread), listens"

    def install(self) -> None:
        queue.storage.initialize_schema()

    def workers(self, processes: int) -> list[list[str]]:
        command = [PYTHON, "-m", "huey.bin.huey_consumer", "tests.bench.peers.huey.queue"]
        return [[*command, "-k", "thread", "-w", str(THREADS), "-q"]] * processes

    def enqueue(self, number: int) -> Any:
        noop(number)

    def bulk(self, numbers: Sequence[int]) -> Any:
        """Huey has no other way."""
        for number in numbers:
            noop(number)

    def ahead(self, count: int) -> Any:
        for _ in range(count):
            noop.schedule((-1,), delay=86_400)
