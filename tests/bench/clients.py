"""Clients that enqueue one by one, each a process and a connection; without Django, so that they start soon."""

from __future__ import annotations

import multiprocessing
import time
from typing import TYPE_CHECKING, Any

import psycopg

if TYPE_CHECKING:
    from multiprocessing.synchronize import Barrier

INSERT = """
insert into pgqueue_message (content, task, dequeue_at, max_attempts)
values (%s::jsonb, 'tests.bench.tasks.noop', 0, null) returning id
"""
CREATE = """
select pgqueue_message_create(%s::jsonb, p_task => 'tests.bench.tasks.noop', p_max_attempts => null)
"""
ROW = '{"args": [1], "kwargs": {}}'


def rate(url: str, statement: str, clients: int, seconds: float) -> float:
    """Commits a second of all of them."""
    context = multiprocessing.get_context("spawn")
    barrier, counted = context.Barrier(clients), context.Queue()
    processes = [
        context.Process(target=client, args=(url, statement, seconds, barrier, counted)) for _ in range(clients)
    ]
    for process in processes:
        process.start()
    total: float = sum(counted.get(timeout=seconds + 120) for _ in processes)
    for process in processes:
        process.join()
    return total


def client(url: str, statement: str, seconds: float, barrier: Barrier, counted: Any) -> None:
    with psycopg.connect(url, autocommit=True, prepare_threshold=0) as connection:
        connection.execute(statement, (ROW,))
        barrier.wait(120)
        begun, count = time.perf_counter(), 0
        while time.perf_counter() - begun < seconds:
            connection.execute(statement, (ROW,))
            count += 1
        counted.put(count / (time.perf_counter() - begun))
