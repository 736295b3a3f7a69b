"""Messages that wait for others: a chain, and one beside many that wait for something else."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

from django.db import transaction

from tests.bench import database, limits, tasks, workers
from tests.bench.pickup import SETTLING_SECONDS, add

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tests.bench.bench import Bench
    from tests.bench.tally import Tally

RAW = "raw loop of the SQL functions, one link at a time"
ALONE = "a chain of two, alone"
WAITING = """
select pgqueue_message_create_after(array[%s::bigint], '{"args": [1], "kwargs": {}}', p_task => %s)
from generate_series(1, %s)
"""


def chains(bench: Bench) -> None:
    """Each message of a chain waits for the one before, so a link costs a claim and an end of its own."""
    links = bench.sizes.links
    put(links)
    with database.connect() as connection:

        def turn() -> int:
            claimed = connection.execute(limits.DEQUEUE, (1, limits.WORKER)).fetchall()
            if claimed:
                connection.execute(limits.COMPLETE, (limits.array(claimed, 0), limits.array(claimed, 1), limits.WORKER))
            return len(claimed)

        connection.execute("select pgqueue_queue_resume('default')")
        bench.rate(RAW, links / limits.loop(turn, links))
    put(links)
    with workers.tallied() as tally, workers.workers() as process:
        drained = workers.measured(links, tally, process)
        bench.rate(f"a chain of {links:,}", drained.rate, limit=RAW, costs=drained.costs)
    beside_others(bench)


def put(links: int) -> None:
    """A chain in a queue that is paused."""
    database.empty()
    database.execute("select pgqueue_queue_pause('default')")
    with transaction.atomic():
        enqueue(range(links))
    database.settle()


def enqueue(numbers: Sequence[int]) -> None:
    after: list[Any] = []
    for number in numbers:
        after = [tasks.noop.using(after=after).enqueue(number)]


def beside_others(bench: Bench) -> None:
    """From the commit of a chain of two to the start of its second job, alone and beside many other dependants."""
    count = bench.sizes.pick_ups
    beside = f"a chain of two, beside {bench.sizes.dependants:,} dependants"
    for name, waiting in ((ALONE, 0), (beside, bench.sizes.dependants)):
        database.empty()
        with workers.tallied(marks=2 * count) as tally, workers.workers():
            tomorrow = tasks.noop.using(run_after=database.value("select now() + interval '1 day'")).enqueue(-1)
            database.execute(WAITING, (tomorrow.id, tasks.noop.module_path, waiting))
            add(bench, name, timed(count, tally), limit=ALONE if waiting else None)


def timed(count: int, tally: Tally) -> list[float]:
    """In milliseconds."""
    time.sleep(SETTLING_SECONDS)
    committing = []
    for number in range(count):
        with transaction.atomic():
            enqueue(range(2 * number, 2 * number + 2))
            committing.append(time.monotonic_ns())
        ran = 2 * (number + 1)
        workers.wait_for(lambda: tally.count >= ran, "the second job")  # noqa: B023 -- called here
    return [(began - committing[number // 2]) / 1e6 for number, began in enumerate(tally.marks()) if number % 2]
