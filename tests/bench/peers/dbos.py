"""DBOS: workflows on a queue."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Any

from dbos import DBOS, DBOSClient

from tests.bench.peers.adapter import DATABASE_URL, PYTHON, STEPS, Adapter
from tests.bench.tally import tally

if TYPE_CHECKING:
    from collections.abc import Sequence

POLLING_SECONDS = 0.05
SLOTS = 32
URL = DATABASE_URL.replace("postgres://", "postgresql://", 1)


def launch() -> None:
    DBOS(config={"name": "bench", "system_database_url": URL, "application_version": "1", "log_level": "ERROR"})
    noted = tally()

    @DBOS.step()
    def step(value: int) -> int:
        return value

    @DBOS.workflow(name="noop")
    def noop(number: int) -> None:
        for value in range(STEPS):
            step(value)
        noted.ran(number)

    DBOS.launch()
    DBOS.register_queue("bench", worker_concurrency=SLOTS, polling_interval_sec=POLLING_SECONDS)


class Peer(Adapter):
    configuration = f"a queue with worker_concurrency={SLOTS}, polling_interval_sec={POLLING_SECONDS}"

    def install(self) -> None:
        launch()

    def workers(self, processes: int) -> list[list[str]]:
        return [[PYTHON, "-m", "tests.bench.peers.dbos"]] * processes

    def enqueue(self, number: int) -> Any:
        self.client().enqueue({"queue_name": "bench", "workflow_name": "noop", "app_version": "1"}, number)

    def bulk(self, numbers: Sequence[int]) -> Any:
        """It has no other way."""
        for number in numbers:
            self.enqueue(number)

    def client(self) -> DBOSClient:
        if not hasattr(self, "_client"):
            self._client = DBOSClient(system_database_url=URL)
        return self._client


if __name__ == "__main__":
    launch()
    threading.Event().wait()
