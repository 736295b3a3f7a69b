"""Celery with Redis on this machine."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from celery import Celery

from tests.bench.peers.adapter import PYTHON, REDIS_URL, Adapter
from tests.bench.tally import tally

if TYPE_CHECKING:
    from collections.abc import Sequence

PREFETCH = 128
app = Celery("bench", broker=REDIS_URL)
app.conf.update(
    task_ignore_result=True,
    worker_prefetch_multiplier=PREFETCH,
    worker_disable_rate_limits=True,
    worker_send_task_events=False,
    broker_connection_retry_on_startup=True,
)
noted = tally()


@app.task(name="noop")
def noop(number: int) -> None:
    noted.ran(number)


class Peer(Adapter):
    configuration = (
        f"prefork, --concurrency is the number of processes, prefetch multiplier {PREFETCH} (for short tasks), results "
        "ignored, no gossip, mingle or heartbeat; Redis as it comes (not durable)"
    )

    def workers(self, processes: int) -> list[list[str]]:
        command = [PYTHON, "-m", "celery", "-A", "tests.bench.peers.celery", "worker", "--loglevel", "ERROR"]
        quiet = ["--without-gossip", "--without-mingle", "--without-heartbeat"]
        return [[*command, *quiet, "--concurrency", str(processes)]]

    def enqueue(self, number: int) -> Any:
        noop.delay(number)

    def bulk(self, numbers: Sequence[int]) -> Any:
        """Celery has no other way, but one connection can be kept for all."""
        with app.producer_pool.acquire(block=True) as producer:
            for number in numbers:
                noop.apply_async((number,), producer=producer)
