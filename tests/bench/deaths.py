"""A worker is killed with all its processes in the middle of a job: how soon another one runs the job again."""

from __future__ import annotations

import os
import signal
import time
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from tests.bench import database, tasks, workers

if TYPE_CHECKING:
    import subprocess
    from collections.abc import Iterator

    from django_pgqueue.tasks import PgQueueTask
    from tests.bench.bench import Bench

JOB_SECONDS = 600.0


def recovery(bench: Bench) -> None:
    """With default settings, beside an idle worker.  Of a durable task only the interrupted step runs again."""
    killed_in(bench, tasks.nap, "a job, which runs again after", begins=1)
    killed_in(bench, tasks.nap_in_a_step, "a step, which runs again after", begins=2)


def killed_in(bench: Bench, task: PgQueueTask[..., Any], words: str, *, begins: int) -> None:
    """``begins``: how often the task has noted that it runs when it waits."""
    database.empty()
    with workers.tallied() as tally, mortal() as first:
        task.enqueue(-1, JOB_SECONDS)
        workers.wait_for(lambda: tally.count == begins, "the job to begin")
        known = database.value("select count(*) from pgqueue_worker")
        with mortal():
            workers.wait_for(lambda: database.value("select count(*) from pgqueue_worker") > known, "the other worker")
            time.sleep(2)
            os.killpg(first.pid, signal.SIGKILL)
            killed = time.monotonic()
            workers.wait_for(lambda: tally.count == begins + 1, "the job to begin again")
            bench.add(f"killed in {words}", time.monotonic() - killed, "s")
    database.empty()


@contextmanager
def mortal(*, threads: int = 4) -> Iterator[subprocess.Popen[bytes]]:
    """A worker as users start it, in a process group of its own, which is killed at the end."""
    process = workers.qworker("-v", "0", "--threads", str(threads), start_new_session=True)
    try:
        yield process
    finally:
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()
