"""What channels cost: the raw loop of a drain over lanes, beside the same without channels."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from django.db import connection as django_connection

from django_pgqueue.worker.connection import connect
from tests.bench import tasks
from tests.bench.workloads import empty

if TYPE_CHECKING:
    from tests.bench.figures import Figures

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


# As workers do it: a claim does not wait for the disk, an end does.
DEQUEUE = """
with setting as materialized (select set_config('synchronous_commit', 'off', true))
select id, attempt
from setting cross join lateral pgqueue_message_dequeue(p_limit => %s, p_worker => 'raw', p_tasks => true)
"""
COMPLETE = "select count(*) from pgqueue_message_complete(%s, %s, 'raw')"
LIMIT = "drain: SQL alone, batches of 100, no channels"


def drain(figures: Figures, count: int, *, channels: int, limit: int | None, batch: int = 100) -> None:
    """The SQL alone, one session: what is noted at the enqueues is worked in during the drain."""
    empty()
    with django_connection.cursor() as cursor:
        cursor.execute(SET, (limit, channels))
        cursor.execute(FILL, (tasks.noop.module_path, channels or None, count))
        cursor.execute("vacuum analyze pgqueue_message")
        cursor.execute("checkpoint")
    done = 0
    with connect("default", prepare=True) as raw:
        begun = time.perf_counter()
        while claimed := raw.execute(DEQUEUE, (batch,), prepare=True, binary=True).fetchall():
            raw.execute(COMPLETE, ([row[0] for row in claimed], [row[1] for row in claimed]), prepare=True, binary=True)
            done += len(claimed)
        rate = done / (time.perf_counter() - begun)
    if done != count:
        message = f"{done} of {count} messages were dequeued"
        raise RuntimeError(message)
    words = "no limit" if limit is None else f"limit {limit}"
    name = f"drain: {channels:,} channels, {words}" if channels else LIMIT
    figures.add(name, rate, "/s", limit=LIMIT if channels else None)
