"""What nobody can beat here: the same SQL functions without any task code, and plain rows without any queue."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from tests.bench import database, drainers, tasks
from tests.bench.meter import Meter

if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

    from tests.bench.bench import Bench

RAW = "raw loop of the SQL functions, batches of 500"
PLAIN = "plain DELETE and INSERT, batches of 500"
# As workers do it: a claim does not wait for the disk, an end does.
DEQUEUE = """
with setting as materialized (select set_config('synchronous_commit', 'off', true))
select id, attempt, content::text
from setting cross join lateral pgqueue_message_dequeue(p_limit => %s, p_worker => %s, p_tasks => true)
"""
COMPLETE = "select count(*) from pgqueue_message_complete(%s::bigint[], %s::integer[], %s)"
WORKER = "raw"
PLAIN_FILL = """
insert into bench_plain (task, content)
select %s, jsonb_build_object('args', jsonb_build_array(n), 'kwargs', '{}'::jsonb) from generate_series(1, %s) as n
"""
PLAIN_END = """
with ended as (
    delete from bench_plain where ctid = any (array(select ctid from bench_plain order by id limit %s)) returning *
)
insert into bench_plain_done select ended.*, now() from ended
"""


def raw(bench: Bench, count: int, *, batch: int = 500, priority: int = 0, name: str = RAW) -> None:
    """The caller has emptied the queue, or put there what shall stand in the way."""
    database.fill(count, tasks.noop, priority=priority)
    database.settle()
    with database.connect() as connection:
        meter = Meter(connection)

        def turn() -> int:
            claimed = connection.execute(DEQUEUE, (batch, WORKER)).fetchall()
            if claimed:
                connection.execute(COMPLETE, (array(claimed, 0), array(claimed, 1), WORKER))
            return len(claimed)

        seconds = loop(turn, count)
        bench.rate(name, count / seconds, costs=meter.costs(count))


def together(bench: Bench, count: int, connections: int) -> str:
    """By as many raw loops as there are worker processes to compare.  Returns the name of the figure."""
    name = f"{RAW}, {connections} connections"
    database.empty()
    database.fill(count, tasks.noop)
    database.settle()
    with database.connect() as connection:
        meter = Meter(connection)
        done, seconds = drainers.drained(database.url(), DEQUEUE, COMPLETE, connections)
        if done != count:
            message = f"{done} of {count} messages were taken"
            raise RuntimeError(message)
        bench.rate(name, count / seconds, costs=meter.costs(count))
    return name


def plain(bench: Bench, count: int, *, batch: int = 500) -> None:
    """Rows leave one table and enter another: no order, no lock, no fence."""
    database.checkpoint()
    database.execute(PLAIN_FILL, (tasks.noop.module_path, count))
    database.execute("vacuum analyze bench_plain")
    with database.connect() as connection:
        meter = Meter(connection)
        seconds = loop(lambda: connection.execute(PLAIN_END, (batch,)).rowcount, count)
        bench.rate(PLAIN, count / seconds, costs=meter.costs(count))


def loop(turn: Callable[[], int], count: int) -> float:
    """Seconds until nothing is left."""
    begun, done = time.perf_counter(), 0
    while taken := turn():
        done += taken
    seconds = time.perf_counter() - begun
    if done != count:
        message = f"{done} of {count} rows were taken"
        raise RuntimeError(message)
    return seconds


def array(rows: list[tuple[Any, ...]], column: int) -> str:
    return f"{{{','.join([str(row[column]) for row in rows])}}}"
