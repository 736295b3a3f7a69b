"""A worker is killed with all its processes in the middle of a job: how soon another one runs the job again."""

from __future__ import annotations

import os
import signal
import time
from contextlib import contextmanager
from typing import TYPE_CHECKING

from tests.bench import database, tasks, workers

if TYPE_CHECKING:
    import subprocess
    from collections.abc import Iterator

    from tests.bench.bench import Bench

JOB_SECONDS = 600.0


def recovery(bench: Bench) -> None:
    """With default settings, beside an idle worker."""
    database.empty()
    with workers.tallied() as tally, mortal() as first:
        tasks.nap.enqueue(-1, JOB_SECONDS)
        workers.wait_for(lambda: tally.count == 1, "the job to begin")
        known = database.value("select count(*) from pgqueue_worker")
        with mortal():
            workers.wait_for(lambda: database.value("select count(*) from pgqueue_worker") > known, "the other worker")
            time.sleep(2)
            os.killpg(first.pid, signal.SIGKILL)
            killed = time.monotonic()
            workers.wait_for(lambda: tally.count > 1, "the job to begin again")
            bench.add("killed in a job, which runs again after", time.monotonic() - killed, "s")
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
