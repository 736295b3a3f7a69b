"""An edit cancels a flood of one queue while a worker drains another one: what the jobs lose, and how long it takes."""

from __future__ import annotations

import os
import signal
import time
from typing import TYPE_CHECKING

from django_pgqueue.control import Filter, count_edit, edit, edit_state, resume_edit, stop_edit
from tests.bench import database, tasks, workers
from tests.bench.deaths import mortal

if TYPE_CHECKING:
    from tests.bench.bench import Bench
    from tests.bench.tally import Tally

QUEUE = "flood"
FLOOD = """
insert into pgqueue_message (queue, content, task, dequeue_at, max_attempts)
select %s, '{"args": [1], "kwargs": {}}', %s, 0, null from generate_series(1, %s)
"""
ALONE = "jobs, before it"
ALONE_SECONDS = 3.0
STOPPED_SECONDS = 2.0


def cancelling(bench: Bench) -> None:
    """The click, the jobs beside it, stop and resume, and a worker that is killed."""
    database.empty()
    database.execute("delete from pgqueue_edit")
    database.execute("select pgqueue_queue_pause(%s)", (QUEUE,))
    database.execute(FLOOD, (QUEUE, tasks.noop.module_path, bench.sizes.edited))
    database.fill(bench.sizes.beside_edit, tasks.nap_briefly)
    database.settle()
    with workers.tallied() as tally, mortal(threads=16) as first:
        workers.wait_for(lambda: tally.count > 0, "the first job")
        begun, before = time.monotonic(), tally.count
        time.sleep(min(ALONE_SECONDS, bench.sizes.seconds))
        bench.rate(ALONE, (tally.count - before) / (time.monotonic() - begun))
        asked = ask(bench)
        during(bench, tally, asked)
        stopped(bench, asked)
        os.killpg(first.pid, signal.SIGKILL)
    database.execute("delete from pgqueue_worker")
    with workers.workers():
        ended(bench, asked)
    database.empty()


def ask(bench: Bench) -> int:
    """What the admin does: a page counts, within its budget, and a click writes a row."""
    begun = time.monotonic()
    count_edit("cancel", Filter(queue=QUEUE))
    counted = time.monotonic()
    asked = edit("cancel", Filter(queue=QUEUE), by="bench")
    bench.add("counted for the page that asks", (counted - begun) * 1000, "ms")
    bench.add("the click", (time.monotonic() - counted) * 1000, "ms")
    return asked


def during(bench: Bench, tally: Tally, asked: int) -> None:
    """Until it is half done."""
    begun = time.monotonic()
    workers.wait_for(lambda: edit_state(asked).done > 0, "a worker to begin")
    bench.add("from the click to the first thousand", time.monotonic() - begun, "s")
    begun, before, first = time.monotonic(), tally.count, edit_state(asked).done
    workers.wait_for(lambda: edit_state(asked).done >= bench.sizes.edited / 2, "half of them", 600)
    seconds = time.monotonic() - begun
    bench.rate("jobs, during it", (tally.count - before) / seconds, limit=ALONE)
    bench.rate("cancelled", (edit_state(asked).done - first) / seconds)


def stopped(bench: Bench, asked: int) -> None:
    stop_edit(asked, by="bench")
    time.sleep(0.5)  # a step may be under way
    before = edit_state(asked).done
    time.sleep(STOPPED_SECONDS)
    bench.add("cancelled while it is stopped", edit_state(asked).done - before, "")
    resume_edit(asked)


def ended(bench: Bench, asked: int) -> None:
    """The worker is dead: another one goes on."""
    begun = time.monotonic()
    workers.wait_for(lambda: edit_state(asked).finished_at is not None, "another worker to finish it", 600)
    bench.add("the rest, by another worker after a kill", time.monotonic() - begun, "s")
    cancelled = database.value("select count(*) from pgqueue_attempt where status = 'cancelled'")
    if (edit_state(asked).done, cancelled) != (bench.sizes.edited, bench.sizes.edited):
        message = f"{edit_state(asked).done} are done, {cancelled} are in the history, of {bench.sizes.edited}"
        raise RuntimeError(message)
