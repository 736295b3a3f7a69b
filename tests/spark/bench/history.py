"""A history to measure with: attempts that never ran, but look as if they had."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

    import psycopg

ROWS_A_TRANSACTION = 100_000
SIZE = "select sum(pg_total_relation_size(relid))::bigint from pg_partition_tree('pgqueue_attempt')"
PARTITION = (
    "select pgqueue_attempt_partition((now() at time zone 'UTC')::date - day) from generate_series(1, %s) as day"
)
# Of a day in each day's order: three queues, twelve tasks, five per cent with an error, half a kilobyte with traceback.
ATTEMPTS = """
    insert into pgqueue_attempt (
        message_id, dequeue_at, created_at, started_at, finished_at, attempt, max_attempts, priority, final, status,
        queue, channel, task, worker, error_class, error_message, traceback, result, content, headers)
    select n, pgqueue_to_epoch(created_at), created_at, created_at + wait, created_at + wait + run,
        1, 5, n % 3, n % 20 <> 0, case n % 20 when 0 then 'retried' else 'succeeded' end,
        (array['default', 'mail', 'reports'])[n % 3 + 1], case n % 10 when 0 then 'tenant-' || n % 97 end,
        'shop.tasks.' || (array['send_receipt', 'resize', 'index', 'charge'])[n % 4 + 1],
        'host-' || n % 7 || ':4711:1700000000',
        case n % 20 when 0 then 'builtins.ValueError' end,
        case n % 20 when 0 then 'invalid literal for int() with base 10: ' || n end,
        case n % 20 when 0 then repeat('  File "/srv/shop/tasks.py", line 42, in charge' || chr(10), 8) end,
        case n % 5 when 0 then to_jsonb(n) end,
        case when n % 20 <> 0 then jsonb_build_object('args', jsonb_build_array(n), 'kwargs', '{}'::jsonb) end,
        case n % 10 when 0 then jsonb_build_object('correlation_id', md5(n::text)) end
    from (
        select n, date_trunc('day', now() at time zone 'UTC') at time zone 'UTC'
                  - %(days)s * interval '1 day' + n * (%(days)s * interval '1 day' / %(rows)s) as created_at,
            (n * 7919 %% 1000) * interval '1.7 ms' as wait, (n * 104729 %% 1000) * interval '2.3 ms' as run
        from generate_series(%(first)s::bigint, %(last)s::bigint) as n
    ) as a
""".replace(" % ", " %% ")


def fill(connection: psycopg.Connection, rows: int, *, days: int, said: Callable[[int], None]) -> None:
    """Finished attempts of the last whole days, spread evenly, in the order in which they ended."""
    connection.execute("truncate pgqueue_attempt")
    connection.execute(PARTITION, [days])
    for first in range(0, rows, ROWS_A_TRANSACTION):
        last = min(rows, first + ROWS_A_TRANSACTION) - 1
        connection.execute(ATTEMPTS, {"days": days, "rows": rows, "first": first, "last": last})
        said(last + 1)
    connection.execute("vacuum (analyze) pgqueue_attempt")


def size(connection: psycopg.Connection) -> int:
    row = connection.execute(SIZE).fetchone()
    return int(row[0]) if row else 0
