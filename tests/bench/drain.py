"""How quickly workers empty the queue, and what may stand in their way."""

from __future__ import annotations

import os
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING

from django.db import connections

from tests.bench import database, limits, tasks, workers

if TYPE_CHECKING:
    from typing import Any

    from tests.bench.bench import Bench

EMPTY = "the same with nothing in the way"
AHEAD = """
insert into pgqueue_message (content, task, dequeue_at, max_attempts, priority, in_line)
select '{"args": [1], "kwargs": {}}', %s, pgqueue_now() + 86400000 + n, null, 100 - mod(n, %s), false
from generate_series(0, %s - 1) as n
"""
SUSPENDED = """
insert into pgqueue_message (content, task, dequeue_at, in_line, attempt, suspended_attempt, awaited_event)
select '{"args": [1], "kwargs": {}}', %s,
       case when n %% 2 = 1 then 9223372036854775807 else pgqueue_now() + 86400000 + n end, false, 1, 1,
       case when n %% 2 = 1 then 'paid:' || n end
from generate_series(0, %s - 1) as n
"""
UNKNOWN = """
insert into pgqueue_message (content, task, dequeue_at, max_attempts)
select '{"args": [1], "kwargs": {}}', 'gone.tasks.t' || mod(n, 10), 0, null from generate_series(0, %s - 1) as n
"""
HISTORY = """
insert into pgqueue_attempt (message_id, dequeue_at, created_at, started_at, finished_at, attempt, priority, final,
                             status, queue, task, worker, content)
select -n, 0, now(), now(), now(), 1, 0, true, 'succeeded', 'default', %s, 'bench', '{"args": [1], "kwargs": {}}'
from generate_series(1, %s) as n
"""


def by_processes(bench: Bench) -> None:
    jobs = bench.sizes.jobs
    database.empty()
    limits.plain(bench, jobs)
    database.empty()
    limits.raw(bench, jobs)
    for processes in bench.sizes.processes:
        limit = limits.RAW if processes == 1 else limits.together(bench, jobs, processes)
        add(bench, f"no-op tasks, {processes} x 4", tasks.noop, processes=processes, limit=limit)


def by_kind(bench: Bench) -> None:
    """Sync on one thread, async on the event loop, and tasks whose signals are received, beside the raw loop."""
    database.empty()
    limits.raw(bench, bench.sizes.jobs)
    add(bench, "sync tasks, 1 x 1", tasks.noop, threads=1, limit=limits.RAW)
    add(bench, "async tasks, 1 x 4", tasks.async_noop, limit=limits.RAW)
    quiet = "sync tasks, 1 x 4"
    add(bench, quiet, tasks.noop, limit=limits.RAW)
    with tempfile.TemporaryDirectory(prefix="pgqueue-bench-") as folder:
        add(bench, f"{quiet}, a line for each job", tasks.noop, limit=quiet, log=Path(folder) / "lines")
    os.environ[tasks.RECEIVERS] = "1"
    try:
        add(bench, "sync tasks whose signals are received, 1 x 4", tasks.noop, limit=limits.RAW)
    finally:
        del os.environ[tasks.RECEIVERS]


def add(
    bench: Bench, name: str, task: Any, *, limit: str | None = None, jobs: int | None = None, **how: Any
) -> workers.Drained:
    database.empty()
    drained = workers.drain(jobs or bench.sizes.jobs, task, **how)
    bench.rate(name, drained.rate, limit=limit, costs=drained.costs)
    return drained


def on_threads(bench: Bench) -> None:
    jobs, seconds, threads = max(200, bench.sizes.jobs // 5), 0.005, 16
    limit = f"{threads} threads that only wait for 5 ms"
    bench.rate(limit, threads / seconds)
    add(bench, "jobs that wait for 5 ms, 1 x 16", tasks.nap_briefly, jobs=jobs, threads=threads, limit=limit)
    database.empty()
    begun = time.perf_counter()
    for number in range(jobs):
        tasks.orm.func(number)
    directly = "a function that uses the ORM, without a queue"
    bench.rate(directly, jobs / (time.perf_counter() - begun))
    connections.close_all()
    for processes in (1, 2):
        add(bench, f"jobs that use the ORM, {processes} x 4", tasks.orm, jobs=jobs, processes=processes, limit=directly)


def behind_scheduled(bench: Bench) -> None:
    """Messages of a higher priority that are not due yet stand before those that are."""
    add(bench, EMPTY, tasks.noop, priority=-100)
    for priorities in (1, 201):
        database.empty()
        database.execute(AHEAD, (tasks.noop.module_path, priorities, bench.sizes.ahead))
        drained = workers.drain(bench.sizes.jobs, tasks.noop, priority=-100)
        words = "1 priority" if priorities == 1 else f"{priorities} priorities"
        bench.rate(f"{bench.sizes.ahead:,} scheduled ahead, {words}", drained.rate, limit=EMPTY, costs=drained.costs)
    database.empty()
    database.execute(SUSPENDED, (tasks.noop.module_path, bench.sizes.ahead))
    drained = workers.drain(bench.sizes.jobs, tasks.noop, priority=-100)
    name = f"{bench.sizes.ahead:,} suspended, half for events and half for times"
    bench.rate(name, drained.rate, limit=EMPTY, costs=drained.costs)


def beside_unknown(bench: Bench) -> None:
    """Messages of tasks that no worker knows: they are parked while others run, or have been parked before."""
    add(bench, EMPTY, tasks.noop)
    database.empty()
    database.execute(UNKNOWN, (bench.sizes.unknown,))
    drained = workers.drain(bench.sizes.jobs, tasks.noop)
    name = f"{bench.sizes.unknown:,} unknown ones stand before, and are parked"
    bench.rate(name, drained.rate, limit=EMPTY, costs=drained.costs)
    with workers.workers():
        workers.wait_for(
            lambda: not database.value("select exists (select from pgqueue_message where parked_at is null)"),
            "all to be parked",
        )
    drained = workers.drain(bench.sizes.jobs, tasks.noop)
    bench.rate(f"{bench.sizes.unknown:,} parked", drained.rate, limit=EMPTY, costs=drained.costs)


def beside_history(bench: Bench) -> None:
    add(bench, EMPTY, tasks.noop)
    name = f"{bench.sizes.history:,} finished attempts in the history"
    database.empty()
    database.execute(HISTORY, (tasks.noop.module_path, bench.sizes.history))
    database.execute("vacuum analyze pgqueue_attempt")
    drained = workers.drain(bench.sizes.jobs, tasks.noop)
    bench.rate(name, drained.rate, limit=EMPTY, costs=drained.costs)


def beside_snapshot(bench: Bench) -> None:
    """Another session holds a snapshot all the time: nothing that has ended can be vacuumed."""
    database.empty()
    with database.connect() as other:
        other.execute("begin isolation level repeatable read")
        other.execute("select count(*) from pgqueue_message")
        drained = workers.drain(bench.sizes.held, tasks.noop)
        other.execute("rollback")
    rates = segment_rates(drained.times, bench.sizes.segment)
    first = f"jobs 0 to {bench.sizes.segment:,}"
    for number, rate in enumerate(rates):
        start = number * bench.sizes.segment
        name = f"jobs {start:,} to {start + bench.sizes.segment:,}"
        bench.rate(name, rate, limit=None if number == 0 else first)
    bench.rate("all", drained.rate, costs=drained.costs)


def segment_rates(times: list[tuple[int, float]], size: int) -> list[float]:
    """Jobs a second in each whole segment; the first one includes the way in.

    >>> segment_rates([(0, 0.0), (50, 1.0), (100, 2.0), (200, 6.0)], 100)
    [50.0, 25.0]
    """
    rates: list[float] = []
    begun, edge = 0.0, size
    for (before, earlier), (count, seconds) in pairwise(times):
        while count >= edge > before:
            at = earlier + (seconds - earlier) * (edge - before) / (count - before)
            rates.append(size / (at - begun))
            begun, edge = at, edge + size
    return rates


def first_burst(bench: Bench) -> None:
    """Workers have looked at empty tables, whose statistics nobody has gathered; then a flood comes."""
    analysed = "the same, analysed"
    for name, settled in ((analysed, True), ("tables that were never analysed", False)):
        database.renew()
        database.execute("alter table pgqueue_message set (autovacuum_enabled = false)")
        drained = workers.drain(bench.sizes.burst, tasks.noop, warm_seconds=2.0, settled=settled)
        bench.rate(name, drained.rate, limit=None if settled else analysed, costs=drained.costs)
    database.renew()


HAND_WRITTEN = "hand-written loop, 8 threads"
CLAIM_ONE = """
select id, attempt from pgqueue_message_dequeue(p_limit => 1, p_worker => %s, p_tasks => true)
"""


def with_a_row(bench: Bench) -> None:
    """Atomic tasks that write a row, beside a loop that claims, inserts and ends with one commit a job."""
    jobs = max(200, bench.sizes.jobs // 5)
    database.empty()
    database.fill(jobs, tasks.atomic_row)
    database.settle()
    begun = time.perf_counter()
    with ThreadPoolExecutor(8) as pool:
        done = sum(pool.map(by_hand, [f"hand {n}" for n in range(8)]))
    assert done == jobs, f"{done} of {jobs} jobs were done by hand"
    bench.rate(HAND_WRITTEN, jobs / (time.perf_counter() - begun))
    database.empty()
    drained = workers.drain(jobs, tasks.atomic_row, threads=8)
    bench.rate("atomic tasks, 1 x 8", drained.rate, limit=HAND_WRITTEN, costs=drained.costs)
    rows = database.value("select count(*) from bench_row")
    assert rows == jobs, f"{rows} rows were written by {jobs} jobs"
    connections.close_all()


def by_hand(worker: str) -> int:
    done = 0
    with database.connect() as connection:
        while True:
            with connection.transaction():
                row = connection.execute(CLAIM_ONE, (worker,)).fetchone()
                if row is None:
                    return done
                connection.execute(tasks.WRITE, (done,))
                connection.execute(
                    "select count(*) from pgqueue_message_complete(array[%s::bigint], array[%s::integer], %s)",
                    (*row, worker),
                )
            done += 1
