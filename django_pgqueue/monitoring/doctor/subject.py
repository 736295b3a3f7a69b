"""A database with a queue, as the checks see it."""

from __future__ import annotations

import datetime as dt
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NamedTuple

from django.db import connections
from psycopg import sql

from django_pgqueue import functions
from django_pgqueue.backend.lookup import pgqueue_backends
from django_pgqueue.worker.upkeep.bloat import OUR_TABLES

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from django_pgqueue.backend.pgqueue import PgQueueBackend
    from django_pgqueue.functions import LakeRow


class TableFacts(NamedTuple):
    """A table that holds rows; in the history, each day's partition."""

    name: str
    oid: int
    bytes: int
    live: int
    dead: int
    tuples: float
    """Estimate of the last analyse; -1: never analysed."""
    options: list[str]


TABLES = f"""
select c.oid::regclass::text, c.oid::bigint, pg_relation_size(c.oid), coalesce(s.n_live_tup, 0),
       coalesce(s.n_dead_tup, 0), c.reltuples::double precision, coalesce(c.reloptions, '{{}}')
from pg_class c
left join pg_stat_all_tables s on s.relid = c.oid
where {OUR_TABLES}
order by c.relname
"""  # noqa: S608 - a constant

OIDS = f"select c.oid::bigint from pg_class c where {OUR_TABLES}"  # noqa: S608 - a constant


@dataclass(slots=True)
class Subject:
    using: str
    now: Callable[[], dt.datetime] = field(default=lambda: dt.datetime.now(dt.UTC))
    """The clock of this host."""

    def rows(self, query: str, parameters: Mapping[str, Any] | None = None) -> list[tuple[Any, ...]]:
        with connections[self.using].cursor() as cursor:
            cursor.execute(query, parameters or {})
            return list(cursor.fetchall())

    def value(self, query: str, parameters: Mapping[str, Any] | None = None) -> Any:
        [[value]] = self.rows(query, parameters)
        return value

    @property
    def options(self) -> str:
        """Settings that this client sends when it connects, by DATABASES or PGOPTIONS."""
        return str(connections[self.using].connection.info.options)

    def tables(self) -> list[TableFacts]:
        return [TableFacts(*row) for row in self.rows(TABLES)]

    def oids(self) -> list[int]:
        """Returns the oids of the same tables.  Sizes would wait for a session that has locked one."""
        return [oid for (oid,) in self.rows(OIDS)]

    @property
    def has_queue(self) -> bool:
        names = ["pgqueue_message", "pgqueue_attempt"]
        asked = "select bool_and(to_regclass(name) is not null) from unnest(%(names)s::text[]) as n (name)"
        return bool(self.value(asked, {"names": names}))

    @property
    def backends(self) -> list[PgQueueBackend]:
        """Backends in TASKS that use this database."""
        return [backend for backend in pgqueue_backends().values() if backend.settings.database == self.using]

    @property
    def history_days(self) -> int | None:
        """Days for which workers keep the history; None: at least one backend never drops it."""
        days = [backend.settings.history_days for backend in self.backends]
        known = [day for day in days if day is not None]
        return max(known) if known and len(known) == len(days) else None

    @property
    def lake_days(self) -> int:
        """Days for which old history waits for a lake."""
        return max((backend.settings.lake_days for backend in self.backends), default=0)

    def lakes(self) -> list[LakeRow]:
        return functions.lakes(connections[self.using])


def quoted(value: str) -> str:
    """Returns a text as an SQL literal, for shown commands."""
    return sql.Literal(value).as_string(None)


def named(value: str) -> str:
    """Returns a name as an SQL identifier, for shown commands."""
    return sql.Identifier(value).as_string(None)
