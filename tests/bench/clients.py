"""Clients that enqueue one by one, each a process and a connection; without Django, so that they start soon."""

from __future__ import annotations

import multiprocessing
import time
from contextlib import ExitStack
from functools import partial
from typing import TYPE_CHECKING, Any

import psycopg

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from multiprocessing.synchronize import Barrier

INSERT = """
insert into pgqueue_message (content, task, dequeue_at, max_attempts)
values (%s::jsonb, 'tests.bench.tasks.noop', 0, null) returning id
"""
CREATE = """
select pgqueue_message_create(%s::jsonb, p_task => 'tests.bench.tasks.noop', p_max_attempts => null)
"""
ROW = '{"args": [1], "kwargs": {}}'


TURN_SECONDS = 0.5


def rates(calls: Sequence[tuple[str, str]], clients: int, seconds: float) -> list[float]:
    """Commits a second of all of them, by each pair of a database's URL and a statement.

    Several take turns: a disk changes its mind in between.
    """
    context = multiprocessing.get_context("spawn")
    barrier, counted = context.Barrier(clients), context.Queue()
    processes = [context.Process(target=client, args=(calls, seconds, barrier, counted)) for _ in range(clients)]
    for process in processes:
        process.start()
    longest = len(calls) * (seconds + 60) + 60
    totals = [sum(each) for each in zip(*(counted.get(timeout=longest) for _ in processes), strict=True)]
    for process in processes:
        process.join()
    return totals


def client(calls: Sequence[tuple[str, str]], seconds: float, barrier: Barrier, counted: Any) -> None:
    with ExitStack() as stack:
        connections = {
            url: stack.enter_context(psycopg.connect(url, autocommit=True, prepare_threshold=0)) for url, _ in calls
        }
        executions = [partial(connections[url].execute, statement, (ROW,)) for url, statement in calls]
        counted.put(taking_turns(executions, seconds, begin=partial(barrier.wait, 120)))


def turns_of(seconds: float, turn_seconds: float = TURN_SECONDS) -> int:
    return max(1, round(seconds / turn_seconds))


def taking_turns(
    calls: Sequence[Callable[[], object]],
    seconds: float,
    *,
    turn_seconds: float = TURN_SECONDS,
    begin: Callable[[], object] = int,
) -> list[float]:
    """How often a second each is called, for so many seconds in turns.  ``begin``: before each turn."""
    turns = turns_of(seconds, turn_seconds)
    counts, used = [0] * len(calls), [0.0] * len(calls)
    for _ in range(turns):
        for number, call in enumerate(calls):
            call()
            begin()
            begun = time.perf_counter()
            while (now := time.perf_counter()) < begun + seconds / turns:
                call()
                counts[number] += 1
            used[number] += now - begun
    return [count / seconds_used for count, seconds_used in zip(counts, used, strict=True)]
