"""Dramatiq with Redis on this machine."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import dramatiq
from dramatiq.brokers.redis import RedisBroker

from tests.bench.peers.adapter import PYTHON, REDIS_URL, Adapter
from tests.bench.tally import tally

if TYPE_CHECKING:
    from collections.abc import Sequence

THREADS = 8
PREFETCH = 128
"""Its own documentation: for many short tasks."""
broker = RedisBroker(url=REDIS_URL)
dramatiq.set_broker(broker)
noted = tally()


@dramatiq.actor
def noop(number: int) -> None:
    noted.ran(number)


class Peer(Adapter):
    configuration = (
        f"--processes, --threads {THREADS} (as it comes), dramatiq_queue_prefetch={PREFETCH}; Redis as it comes (not "
        "durable)"
    )

    def workers(self, processes: int) -> list[list[str]]:
        command = ["env", f"dramatiq_queue_prefetch={PREFETCH}", PYTHON, "-m", "dramatiq", "tests.bench.peers.dramatiq"]
        return [[*command, "--processes", str(processes), "--threads", str(THREADS)]]

    def enqueue(self, number: int) -> Any:
        noop.send(number)

    def bulk(self, numbers: Sequence[int]) -> Any:
        for number in numbers:
            noop.send(number)
