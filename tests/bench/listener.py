"""What no pick-up can beat here: a process that listens, claims and completes by the same SQL, and does nothing else.

Without Django, so that it starts soon.
"""

from __future__ import annotations

import json
import multiprocessing
import select
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import psycopg

from tests.bench.tally import Tally

if TYPE_CHECKING:
    from collections.abc import Iterator
    from multiprocessing.synchronize import Event
    from pathlib import Path

WORKER = "raw"
SLEEP = "select pgqueue_worker_seen(%s, null, '{}', 'bench', pg_backend_pid(), 1, 3600000)"


@contextmanager
def listening(url: str, path: Path, dequeue: str, complete: str) -> Iterator[None]:
    """``dequeue`` takes how many and the worker's name, and answers id, attempt and content; ``complete`` takes ids,
    attempts and the name."""
    context = multiprocessing.get_context("spawn")
    ready = context.Event()
    process = context.Process(target=listen, args=(url, path, dequeue, complete, ready), daemon=True)
    process.start()
    try:
        if not ready.wait(60):
            message = "waited 60 seconds for the raw loop to listen"
            raise TimeoutError(message)
        yield
    finally:
        process.terminate()
        process.join()


def listen(url: str, path: Path, dequeue: str, complete: str, ready: Event) -> None:
    tally = Tally(path)
    with psycopg.connect(url, autocommit=True, prepare_threshold=0) as connection:
        connection.execute(f"listen pgqueue_{WORKER}")
        connection.execute(SLEEP, (WORKER,))
        take(connection, tally, dequeue, complete)  # and has prepared its statements
        ready.set()
        while select.select([connection.pgconn.socket], [], []):
            connection.pgconn.consume_input()
            while connection.pgconn.notifies():
                pass
            take(connection, tally, dequeue, complete)


def take(connection: psycopg.Connection[Any], tally: Tally, dequeue: str, complete: str) -> None:
    claimed = connection.execute(dequeue, (16, WORKER)).fetchall()
    for _, _, content in claimed:
        tally.ran(json.loads(content)["args"][0])
    connection.execute(complete, ([row[0] for row in claimed], [row[1] for row in claimed], WORKER))
