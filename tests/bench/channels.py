"""What channels cost: the raw loop of a drain over lanes, beside the same without channels."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tests.bench import database, limits, tasks
from tests.bench.meter import Meter

if TYPE_CHECKING:
    from tests.bench.bench import Bench

SET = """
insert into pgqueue_channel (name, max_concurrency, set_at)
select 'tenant ' || n, %s, now() from generate_series(0, %s - 1) as n
"""
FILL = """
insert into pgqueue_message (content, task, dequeue_at, max_attempts, channel)
select jsonb_build_object('args', jsonb_build_array(n), 'kwargs', '{}'::jsonb), %s, 0, null,
       'tenant ' || mod(n, %s)
from generate_series(1, %s) as n
"""
LIMIT = "SQL alone, batches of 100, no channels"


def lanes(bench: Bench) -> None:
    """The SQL alone, one session: what is noted at the enqueues is worked in during the drain."""
    drain(bench, channels=0, limit=None)
    drain(bench, channels=10, limit=None)
    drain(bench, channels=1_000, limit=5)
    drain(bench, channels=10_000, limit=1)


def drain(bench: Bench, *, channels: int, limit: int | None, batch: int = 100) -> None:
    count = bench.sizes.jobs
    database.empty()
    database.execute(SET, (limit, channels))
    database.checkpoint()
    database.execute(FILL, (tasks.noop.module_path, channels or None, count))
    database.settle()
    with database.connect() as raw:
        meter = Meter(raw)

        def turn() -> int:
            claimed = raw.execute(limits.DEQUEUE, (batch, limits.WORKER)).fetchall()
            if claimed:
                raw.execute(limits.COMPLETE, (limits.array(claimed, 0), limits.array(claimed, 1), limits.WORKER))
            return len(claimed)

        rate = count / limits.loop(turn, count)
        words = "no limit" if limit is None else f"limit {limit}"
        name = f"{channels:,} channels, {words}" if channels else LIMIT
        bench.rate(name, rate, limit=LIMIT if channels else None, costs=meter.costs(count))
