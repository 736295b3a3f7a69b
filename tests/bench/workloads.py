"""What is measured.  Each workload takes an empty queue, a size, and the figures to add to."""

from __future__ import annotations

import os
import random
import resource
import signal
import subprocess
import sys
import time
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from django.db import connection as django_connection

from django_pgqueue import bulk, functions
from django_pgqueue.worker.connection import connect
from tests.bench import tasks

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.bench.figures import Figures

INSERT = """
insert into pgqueue_message (content, task, dequeue_at, max_attempts)
values ('{"args": [1], "kwargs": {}}', 'tests.bench.tasks.noop', 0, null) returning id
"""
FILL = """
insert into pgqueue_message (content, task, dequeue_at, max_attempts)
select jsonb_build_object('args', jsonb_build_array(n), 'kwargs', '{}'::jsonb), %s, 0, null
from generate_series(1, %s) as n
"""


def empty() -> None:
    with django_connection.cursor() as cursor:
        cursor.execute(
            "truncate pgqueue_message, pgqueue_attempt, pgqueue_worker, pgqueue_channel, pgqueue_lane, pgqueue_arrival"
        )


def fill(count: int, task: Any = tasks.noop) -> None:
    empty()
    with django_connection.cursor() as cursor:
        cursor.execute(FILL, (task.module_path, count))
        cursor.execute("vacuum analyze pgqueue_message")
        cursor.execute("checkpoint")


def enqueue_one(figures: Figures, count: int) -> None:
    """One client, one commit each."""
    empty()
    with connect("default", prepare=True) as raw:
        begun = time.perf_counter()
        for _ in range(count):
            raw.execute(INSERT).fetchone()
        figures.add("enqueue: plain INSERT", count / (time.perf_counter() - begun), "/s")

        begun = time.perf_counter()
        for _ in range(count):
            functions.message_create(raw, '{"args": [1], "kwargs": {}}', task="tests.bench.tasks.noop")
        rate = count / (time.perf_counter() - begun)
        figures.add("enqueue: raw binding", rate, "/s", limit="enqueue: plain INSERT")

    begun = time.perf_counter()
    for number in range(count):
        tasks.noop.enqueue(number)
    rate = count / (time.perf_counter() - begun)
    figures.add("enqueue: task.enqueue()", rate, "/s", limit="enqueue: plain INSERT")


def enqueue_bulk(figures: Figures, count: int) -> None:
    """Many messages with one statement."""
    empty()
    item = '{"content": {"args": [1], "kwargs": {}}, "task": "tests.bench.tasks.noop"}'
    messages = f"[{','.join([item] * count)}]"
    with connect("default", prepare=True) as raw:
        begun = time.perf_counter()
        functions.message_create_many(raw, messages)
        figures.add("enqueue: bulk, one statement", count / (time.perf_counter() - begun), "/s")


COPY = "copy pgqueue_message (content, queue, task, priority, dequeue_at, max_attempts, created_at) from stdin"


def enqueue_many(figures: Figures, count: int) -> None:
    """enqueue_many() from a generator, beside COPY of the same rows: the limit of any way in."""
    empty()
    with connect("default", prepare=True) as raw:
        begun = time.perf_counter()
        with raw.cursor().copy(COPY) as copy:
            for number in range(count):
                content = f'{{"args":[{number}],"kwargs":{{}}}}'
                copy.write_row((content, "default", "tests.bench.tasks.noop", 0, 0, None, "now"))
        figures.add("enqueue: COPY", count / (time.perf_counter() - begun), "/s")

    empty()
    begun = time.perf_counter()
    bulk.enqueue_many(tasks.noop, range(count))
    rate = count / (time.perf_counter() - begun)
    figures.add("enqueue: enqueue_many()", rate, "/s", limit="enqueue: COPY")

    empty()
    begun = time.perf_counter()
    bulk.enqueue_many(tasks.noop, (bulk.Call((number,), priority=number % 3) for number in range(count)))
    rate = count / (time.perf_counter() - begun)
    figures.add("enqueue: enqueue_many(), each with a Call", rate, "/s", limit="enqueue: COPY")


def drain_raw(figures: Figures, count: int, batch: int = 500) -> None:
    """The limit of a drain: the same functions in a loop, without any task."""
    fill(count)
    with connect("default", prepare=True) as raw:
        begun, wal = time.perf_counter(), wal_bytes()
        while claimed := functions.message_dequeue(raw, limit=batch, worker="raw", tasks=True, flush=False):
            functions.message_complete(raw, [functions.Success(m.id, m.attempt) for m in claimed], worker="raw")
        figures.add("drain: raw SQL loop", count / (time.perf_counter() - begun), "/s")
        figures.add("drain: WAL", (wal_bytes() - wal) / count, "bytes/job")


def drain(figures: Figures, count: int, *, task: Any, processes: int, threads: int) -> None:
    """Real worker processes x threads; timed from the first start to the last end in the history.

    The CPU time is all of the worker's, its start included.
    """
    fill(count, task)
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    with worker("--burst", "--processes", str(processes), "--threads", str(threads)) as process:
        process.wait()
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    with django_connection.cursor() as cursor:
        cursor.execute(
            "select count(*), extract(epoch from max(finished_at) - min(started_at)) from pgqueue_attempt "
            "where status = 'succeeded'"
        )
        done, seconds = cursor.fetchone()
    if done != count:
        message = f"{done} of {count} jobs succeeded"
        raise RuntimeError(message)
    name = f"drain: {task.name}, {processes} x {threads}"
    figures.add(name, count / float(seconds), "/s", limit="drain: raw SQL loop")
    cpu = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    figures.add(f"{name}: worker CPU", cpu / count * 1e6, "µs/job")


def pick_up(figures: Figures, count: int, *, gap_seconds: float) -> None:
    """From the enqueue's transaction to the start of the job, on a worker that has nothing else to do."""
    empty()
    with worker() as process:
        wait_for("select count(*) from pgqueue_worker", 1)
        for _ in range(count):
            tasks.noop.enqueue()
            time.sleep(gap_seconds * random.uniform(0.5, 1.5))
        wait_for("select count(*) from pgqueue_attempt", count)
        process.send_signal(signal.SIGTERM)
        process.wait()
    with django_connection.cursor() as cursor:
        cursor.execute(
            "select percentile_cont(array[0.5, 0.99]) within group "
            "(order by extract(epoch from started_at - created_at) * 1000) from pgqueue_attempt"
        )
        p50, p99 = cursor.fetchone()[0]
    name = f"pick-up: a job every {gap_seconds:g} s"
    figures.add(f"{name}: p50", float(p50), "ms")
    figures.add(f"{name}: p99", float(p99), "ms")


@contextmanager
def worker(*arguments: str) -> Iterator[subprocess.Popen[bytes]]:
    process = subprocess.Popen(
        [sys.executable, "-m", "django", "qworker", "--verbosity", "0", *arguments],
        env={**os.environ, "DJANGO_SETTINGS_MODULE": "tests.bench.settings"},
    )
    try:
        yield process
    finally:
        process.terminate()
        if process.wait():
            message = f"the worker ended with {process.returncode}"
            raise RuntimeError(message)


def wal_bytes() -> int:
    with django_connection.cursor() as cursor:
        cursor.execute("select pg_current_wal_lsn() - '0/0'::pg_lsn")
        return int(cursor.fetchone()[0])


def wait_for(query: str, count: int, seconds: float = 60) -> None:
    deadline = time.monotonic() + seconds
    with django_connection.cursor() as cursor:
        while True:
            cursor.execute(query)
            if cursor.fetchone()[0] >= count:
                return
            if time.monotonic() > deadline:
                message = f"{query} did not reach {count} in {seconds:g} seconds"
                raise TimeoutError(message)
            time.sleep(0.02)
