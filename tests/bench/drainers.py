"""Raw loops that share a queue, each a process and a connection; without Django, so that they start soon."""

from __future__ import annotations

import multiprocessing
import time
from typing import TYPE_CHECKING, Any

import psycopg

if TYPE_CHECKING:
    from multiprocessing.synchronize import Barrier

BATCH = 500


def drained(url: str, dequeue: str, complete: str, connections: int) -> tuple[int, float]:
    """Returns how many all of them have ended, and the seconds until the last one found nothing.

    ``dequeue`` and ``complete`` are as in ``limits``, with a place for the worker's name.
    """
    context = multiprocessing.get_context("spawn")
    barrier, counted = context.Barrier(connections + 1), context.Queue()
    processes = [
        context.Process(target=drain, args=(url, (dequeue, complete), f"raw{number}", barrier, counted), daemon=True)
        for number in range(connections)
    ]
    for process in processes:
        process.start()
    barrier.wait(120)
    begun = time.monotonic()
    ended = [counted.get(timeout=900) for _ in processes]
    for process in processes:
        process.join()
    return sum(count for count, _ in ended), max(at for _, at in ended) - begun


def drain(url: str, statements: tuple[str, str], worker: str, barrier: Barrier, counted: Any) -> None:
    dequeue, complete = statements
    with psycopg.connect(url, autocommit=True, prepare_threshold=0) as connection:
        barrier.wait(120)
        done = 0
        while claimed := connection.execute(dequeue, (BATCH, worker)).fetchall():
            connection.execute(complete, ([row[0] for row in claimed], [row[1] for row in claimed], worker))
            done += len(claimed)
        counted.put((done, time.monotonic()))
