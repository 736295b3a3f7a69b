"""The blocks and tables that the queries of a page read."""

from __future__ import annotations

import json
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from django.db import connection

from django_pgqueue.admin.parts.paginator import CappedPaginator
from tests.support.fixtures.admin import sql

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

DAYS = 4

# A list looks for as many ids as it counts, and each may be in a page of its own.
AT_MOST = 1.1 * CappedPaginator.CAP


@dataclass
class Cost:
    buffers: int = 0
    scanned: set[str] = field(default_factory=set)
    """Tables that were read from one end to the other."""
    statements: list[str] = field(default_factory=list)


@contextmanager
def measured() -> Iterator[Cost]:
    """Explains each query of the queue's tables where and when it is made, under the settings of that moment."""
    cost = Cost()

    def look(execute: Callable[..., Any], statement: str, params: Any, many: bool, context: dict[str, Any]) -> Any:
        if "pgqueue_" in statement and statement.split(maxsplit=1)[0].lower() in {"select", "with"}:
            with context["connection"].cursor().cursor as cursor:
                cursor.execute(f"explain (analyze, buffers, format json) {statement}", params)
                _add(cost, cursor.fetchone()[0], statement)
        return execute(statement, params, many, context)

    with connection.execute_wrapper(look):
        yield cost


def _add(cost: Cost, explained: Any, statement: str) -> None:
    plan = (json.loads(explained) if isinstance(explained, str) else explained)[0]["Plan"]
    cost.buffers += plan["Shared Hit Blocks"] + plan["Shared Read Blocks"]
    cost.scanned |= {name for name in _scanned(plan) if name.startswith(("pgqueue_message", "pgqueue_attempt"))}
    cost.statements.append(statement)


def _scanned(node: dict[str, Any]) -> Iterator[str]:
    if node["Node Type"] == "Seq Scan":
        yield node["Relation Name"]
    for child in node.get("Plans", ()):
        yield from _scanned(child)


def partitions() -> list[str]:
    """Makes the partitions of the last days, and answers the tables of the queue that grow."""
    sql("select pgqueue_attempt_partition((now() at time zone 'utc')::date - n) from generate_series(0, %s) n", DAYS)
    return [
        name
        for (name,) in sql(
            "select relname from pg_class where relkind = 'r' and relname ~ '^pgqueue_(message$|attempt_)' order by 1"
        )
    ]


def fill(rows: int) -> None:
    """So many messages, most of them scheduled, and as many finished attempts of the last days."""
    [[start]] = sql("select coalesce(max(id), 0) from pgqueue_message")
    sql(
        """
        insert into pgqueue_message (dequeue_at, priority, queue, channel, task, content, created_at, in_line)
        select pgqueue_now() + case when i %% 6 = 0 then -i else i end * 1000, (i %% 3) * 10,
               (array['default', 'mail', 'reports'])[1 + i %% 3], case when i %% 50 = 0 then 'tenant-' || i %% 7 end,
               case when i %% 20 <> 0 then 'shop.tasks.t' || i %% 9 end,
               '{"args": [1, 2, 3], "kwargs": {"some": "thing"}}', now() - i * interval '1 second', i %% 6 = 0
        from generate_series(1, %s) i
        """,
        rows,
    )
    sql(
        """
        insert into pgqueue_attempt (
            message_id, dequeue_at, created_at, started_at, finished_at, attempt, priority, final, status, queue, task,
            worker, error_class, error_message, content)
        select i, 0, at, at, at + i %% 100 * interval '20 ms', 1, 0, true,
               case when i %% 5000 = 7 then 'failed' else 'succeeded' end,
               (array['default', 'mail', 'reports'])[1 + i %% 3], 'shop.tasks.t' || i %% 9, 'w',
               case when i %% 5000 = 7 then 'builtins.ValueError' end, case when i %% 5000 = 7 then 'no' end,
               '{"args": [1, 2, 3], "kwargs": {"some": "thing"}}'
        from (
            select i, now() - %s * interval '1 day' + i * (%s * interval '1 day' / %s) as at
            from generate_series(1, %s) i
        ) as times
        """,
        DAYS,
        DAYS,
        rows,
        rows,
    )
    for pk, unlock_ms in ((start + 1, 600_000), (start + 2, -600_000)):
        sql(
            "update pgqueue_message set unlock_at = pgqueue_now() + %s, locked_at = now(), worker = 'w' where id = %s",
            unlock_ms,
            pk,
        )


def rare() -> int:
    """One message that is not like the others, in front of all that comes."""
    [[pk]] = sql(
        "insert into pgqueue_message (dequeue_at, queue, task, channel, content) "
        "values (-1, 'rare', 'shop.rare', 'rare', '{}') returning id"
    )
    return int(pk)
