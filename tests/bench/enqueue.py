"""How quickly messages come in."""

from __future__ import annotations

import time
from functools import partial
from typing import TYPE_CHECKING

from django.db import transaction

from django_pgqueue import functions
from django_pgqueue.backend import bulk
from tests.bench import clients, database, tasks, workers
from tests.bench.meter import Meter

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.bench.bench import Bench

COPY = "copy pgqueue_message (content, queue, task, priority, dequeue_at, max_attempts, created_at) from stdin"


PREPARED = {"server_side_binding": True, "prepare_threshold": 1}
"""OPTIONS of a database with which Django's statements are prepared: not so by default."""


def one_by_one(bench: Bench) -> None:
    """By a plain INSERT, by the SQL function, and by task.enqueue(): one commit each, and at last without commits."""
    sizes = bench.sizes
    for count in sizes.clients:
        plain = f"plain INSERT, {count} clients"
        database.empty()
        both = [(database.url(), statement) for statement in (clients.INSERT, clients.CREATE)]
        inserts, creates = clients.rates(both, count, sizes.enqueue_seconds)
        bench.rate(plain, inserts)
        bench.rate(f"SQL function, {count} clients", creates, limit=plain)
        for sleepers in filter(None, sizes.sleepers):
            beside_sleepers(bench, sleepers, count)
    by_tasks(bench)
    in_a_transaction(bench)


def beside_sleepers(bench: Bench, sleepers: int, count: int) -> None:
    """In turns with a queue that has none.  The workers are real: woken, they run what comes, on the same machine."""
    there = f"SQL function, {count} clients, {sleepers} workers asleep"
    elsewhere = f"{there} elsewhere"
    database.empty()
    with workers.tallied(), workers.workers(processes=sleepers, threads=1):
        asleep = "select count(*) from pgqueue_worker where asleep_until is not null"
        workers.wait_for(lambda: database.value(asleep) >= sleepers, "the workers to sleep")
        both = [(url, clients.CREATE) for url in (database.elsewhere(), database.url())]
        without, beside = clients.rates(both, count, bench.sizes.enqueue_seconds)
    bench.rate(elsewhere, without)
    bench.rate(there, beside, limit=elsewhere)


def by_tasks(bench: Bench) -> None:
    """In turns with the SQL function, called by the same process, because the disk sets the pace of both."""
    for name, options in (("task.enqueue()", {}), ("task.enqueue(), statements prepared", PREPARED)):
        database.empty()
        with database.options(options), database.connect() as raw:
            calls = (partial(raw.execute, clients.CREATE, (clients.ROW,)), partial(tasks.noop.enqueue, 1))
            function, enqueue = clients.taking_turns(calls, bench.sizes.enqueue_seconds)
        limit = f"SQL function beside {name}"
        bench.rate(limit, function)
        bench.rate(name, enqueue, limit=limit)


def in_a_transaction(bench: Bench) -> None:
    """Both in a transaction that ends with the turns, so that no commit hides what the client adds."""
    limit, name = "SQL function in a transaction", "task.enqueue() in a transaction"
    database.empty()
    with database.connect() as raw, raw.transaction(force_rollback=True), transaction.atomic():
        calls = (partial(raw.execute, clients.CREATE, (clients.ROW,)), partial(tasks.noop.enqueue, 1))
        function, enqueue = clients.taking_turns(calls, bench.sizes.enqueue_seconds)
        transaction.set_rollback(True)
    bench.rate(limit, function)
    bench.rate(name, enqueue, limit=limit)


def in_bulk(bench: Bench) -> None:
    """Beside COPY of the same rows, which is the limit of any way in."""
    count = bench.sizes.bulk
    timed(bench, "COPY", count, copy)
    timed(bench, "one SQL statement", count, one_statement, limit="COPY")
    timed(bench, "enqueue_many()", count, lambda count: bulk.enqueue_many(tasks.noop, range(count)), limit="COPY")
    timed(bench, "enqueue_many(), each with a Call", count, many_calls, limit="COPY")


def timed(bench: Bench, name: str, count: int, work: Callable[[int], object], limit: str | None = None) -> None:
    database.empty()
    database.checkpoint()
    with database.connect() as connection:
        meter, begun = Meter(connection), time.perf_counter()
        work(count)
        rate = count / (time.perf_counter() - begun)
        bench.rate(name, rate, limit=limit, costs=meter.costs(count))


def copy(count: int) -> None:
    with database.connect() as raw, raw.cursor().copy(COPY) as copying:
        for number in range(count):
            content = f'{{"args":[{number}],"kwargs":{{}}}}'
            copying.write_row((content, "default", "tests.bench.tasks.noop", 0, 0, None, "now"))


def one_statement(count: int) -> None:
    contents = [f'{{"args":[{number}],"kwargs":{{}}}}' for number in range(count)]
    like = functions.NewMessage(content="null", task="tests.bench.tasks.noop", max_attempts=None)
    with database.connect() as raw:
        functions.enqueue_alike(raw, contents, like)


def many_calls(count: int) -> None:
    bulk.enqueue_many(tasks.noop, (bulk.Call((number,), priority=number % 3) for number in range(count)))
