"""Tables and indexes of the queue that take far more room than their rows need."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from django_pgqueue.values.sizes import size

if TYPE_CHECKING:
    from collections.abc import Iterator

    from django_pgqueue.functions import Connection

LARGE_BYTES = 64 << 20
"""Smaller tables and indexes are read in a moment."""
MAX_BYTES_A_ROW = 16_384
"""Long contents are stored aside, so the rows of a table that is in use are far smaller than two pages."""
MAX_INDEX_BYTES_A_ROW = 2_048
MANY_DEAD = 100_000

OUR_TABLES = """
    c.relkind = 'r' and starts_with(c.relname, 'pgqueue_')
    and c.relnamespace = (select m.relnamespace from pg_class m where m.oid = to_regclass('pgqueue_message'))
"""
"""The tables with rows in the schema of the messages' table.  In the history each day is a table."""

# Counters and sizes, no rows: it costs the same whatever the tables hold.  The history is left out, because only whole
# days of it are deleted.  A crash of the server loses the counters, so those of the last analyze count too.
TABLES = f"""
select c.oid::regclass::text, pg_relation_size(c.oid),
       greatest(coalesce(s.n_live_tup, 0), c.reltuples::bigint), coalesce(s.n_dead_tup, 0),
       array(select i.indexrelid::regclass::text from pg_index i where i.indrelid = c.oid order by 1),
       array(select pg_relation_size(i.indexrelid) from pg_index i where i.indrelid = c.oid
             order by i.indexrelid::regclass::text)
from pg_class c
left join pg_stat_all_tables s on s.relid = c.oid
where {OUR_TABLES} and not starts_with(c.relname, 'pgqueue_attempt')
order by 1
"""  # noqa: S608 - a constant


@dataclass(frozen=True, slots=True, kw_only=True)
class Bloated:
    kind: Literal["dead-rows", "bloated-table", "bloated-index"]
    name: str
    bytes: int
    live: int
    dead: int

    def __str__(self) -> str:
        if self.kind == "dead-rows":
            return f"{self.name} has {self.dead:,} dead rows and {self.live:,} live ones, in {size(self.bytes)}."
        return f"{self.name} takes {size(self.bytes)} for {self.live:,} live rows."


def found(connection: Connection) -> Iterator[Bloated]:
    with connection.cursor() as cursor:
        cursor.execute(TABLES)
        tables = cursor.fetchall()
    for name, in_bytes, live, dead, indexes, index_bytes in tables:
        if dead > MANY_DEAD and dead > live:
            yield Bloated(kind="dead-rows", name=name, bytes=in_bytes, live=live, dead=dead)
        elif in_bytes > LARGE_BYTES and in_bytes > MAX_BYTES_A_ROW * (live + dead):
            yield Bloated(kind="bloated-table", name=name, bytes=in_bytes, live=live, dead=dead)
        for index, its_bytes in zip(indexes, index_bytes, strict=True):
            if its_bytes > LARGE_BYTES and its_bytes > MAX_INDEX_BYTES_A_ROW * (live + dead):
                yield Bloated(kind="bloated-index", name=index, bytes=its_bytes, live=live, dead=dead)
