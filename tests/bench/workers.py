"""Real workers, started as users start them, and the drain that they are measured by."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
import time
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tests.bench import database
from tests.bench.meter import Costs, Meter
from tests.bench.tally import VARIABLE, Tally

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

MAX_SECONDS = 900.0
WAKE_ALL = "select pg_notify('pgqueue_' || id, 'default') from pgqueue_worker where asleep_until is not null"

# Quicker than to count them where millions stand before.
ENDED = "select case when is_called then last_value else 0 end from pgqueue_attempt_id_seq"


@dataclass(frozen=True, slots=True)
class Drained:
    """How quickly the jobs ran, from the moment that they could be dequeued until the last end was recorded."""

    rate: float
    costs: Costs
    times: list[tuple[int, float]]
    """How many had run after how many seconds."""


@contextmanager
def tallied(marks: int = 0) -> Iterator[Tally]:
    """What jobs of workers that are started inside note down."""
    with tempfile.TemporaryDirectory(prefix="pgqueue-bench-") as folder:
        tally = Tally.create(Path(folder) / "tally", marks)
        os.environ[VARIABLE] = str(tally.path)
        try:
            yield tally
        finally:
            del os.environ[VARIABLE]


def qworker(*flags: str, **how: Any) -> subprocess.Popen[bytes]:
    return subprocess.Popen(
        [sys.executable, "-m", "django", "qworker", *flags],
        env={**os.environ, "DJANGO_SETTINGS_MODULE": "tests.bench.settings"},
        **how,
    )


@contextmanager
def workers(processes: int = 1, threads: int = 4, *, log: Path | None = None) -> Iterator[subprocess.Popen[bytes]]:
    """Workers that have started and look for work, one supervisor with its processes.  ``log``: the file for their
    lines, one for each job.
    """
    flags = ["--processes", str(processes), "--threads", str(threads), *(["-v", "0"] if log is None else [])]
    with Path(log or os.devnull).open("ab") as lines:
        process = qworker(*flags, stdout=lines if log else None, stderr=lines if log else None)
    try:
        wait_for(lambda: database.value("select count(*) from pgqueue_worker") >= processes, "the workers to start")
        yield process
    finally:
        process.send_signal(signal.SIGTERM)
        if process.wait(60):
            message = f"the worker ended with {process.returncode}"
            raise RuntimeError(message)


def drain(
    count: int,
    task: Any,
    *,
    processes: int = 1,
    threads: int = 4,
    priority: int = 0,
    settled: bool = True,
    warm_seconds: float = 0.0,
    log: Path | None = None,
) -> Drained:
    """The queue is paused until the messages are there and the workers have started: neither is measured.

    The caller has emptied the queue, or put there what shall stand in the way.
    """
    database.execute("select pgqueue_queue_pause('default')")
    with tallied() as tally:
        if warm_seconds:  # workers that have looked at empty tables for a while, and then comes the flood
            with workers(processes, threads) as process:
                time.sleep(warm_seconds)
                arrive(count, task, priority=priority, settled=settled)
                return measured(count, tally, process)
        arrive(count, task, priority=priority, settled=settled)
        with workers(processes, threads, log=log) as process:
            return measured(count, tally, process)


def arrive(count: int, task: Any, *, priority: int, settled: bool) -> None:
    database.fill(count, task, priority=priority)
    if settled:
        database.settle()


def measured(count: int, tally: Tally, process: subprocess.Popen[bytes]) -> Drained:
    with database.connect() as connection:
        before = database.value(ENDED)
        meter = Meter(connection, process.pid)
        connection.execute("select pgqueue_queue_resume('default')")
        connection.execute(WAKE_ALL)
        begun = time.monotonic_ns()
        times = watch(tally, count, begun, process)
        wait_for(lambda: database.value(ENDED) - before >= count, "the ends to be recorded", every=0.003)
        recorded = time.monotonic_ns()
        meter.stop()
        process.send_signal(signal.SIGTERM)
        process.wait(60)
        ended = database.value(ENDED) - before
        if ended != count:
            message = f"{ended} of {count} jobs are in the history"
            raise RuntimeError(message)
        return Drained(count / ((recorded - begun) / 1e9), meter.costs(count), times)


def watch(tally: Tally, count: int, begun: int, process: subprocess.Popen[bytes]) -> list[tuple[int, float]]:
    """Until all have run: how many had after how many seconds."""
    times = [(0, 0.0)]
    while times[-1][0] < count:
        time.sleep(0.01)
        times.append((tally.count, (time.monotonic_ns() - begun) / 1e9))
        if process.poll() is not None or times[-1][1] > MAX_SECONDS:
            message = f"{times[-1][0]} of {count} jobs ran in {times[-1][1]:.0f} seconds"
            raise RuntimeError(message)
    return times


def wait_for(condition: Callable[[], bool], what: str, seconds: float = 120.0, *, every: float = 0.02) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > deadline:
            message = f"waited {seconds:g} seconds for {what}"
            raise TimeoutError(message)
        time.sleep(every)
