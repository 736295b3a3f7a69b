"""Effects of a task in the database: they are compared, and undone after each run."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from django.apps import apps
from django.db import connections, router
from psycopg import sql

from django_pgqueue.conf import APP_LABEL

if TYPE_CHECKING:
    from collections.abc import Iterable

    import psycopg

MAX_SHOWN = 3
JOBS = "enqueued jobs"


class Effects(ABC):
    @abstractmethod
    def seen(self) -> Any:
        """Returns the effects that are there now."""

    @abstractmethod
    def learn(self) -> None:
        """Takes note of the effects of a run without a crash."""

    @abstractmethod
    def difference(self, expected: Any) -> str:
        """Returns the difference as text, empty if there is none."""


@dataclass(frozen=True, slots=True)
class WatchedTable:
    name: str
    columns: tuple[str, ...]
    generated: frozenset[str]
    """Columns whose values the database generates: a run that is rolled back uses some of them up."""
    references: dict[str, str]
    """Foreign keys: columns with the key of a row, and its table."""
    key: str


class DatabaseEffects(Effects):
    """Effects in all databases of a test: the first is the queue's."""

    def __init__(self, databases: Iterable[RowEffects]) -> None:
        self.databases = tuple(databases)

    def seen(self) -> list[dict[str, Counter[Any]]]:
        return [database.seen() for database in self.databases]

    def learn(self) -> None:
        for database in self.databases:
            database.learn()

    def difference(self, expected: list[dict[str, Counter[Any]]]) -> str:
        own, *others = [rows.difference(its) for rows, its in zip(self.databases, expected, strict=True)]
        named = (f"in {rows.database!r}: {text}" for rows, text in zip(self.databases[1:], others, strict=True) if text)
        return "; ".join(filter(None, (own, *named)))

    def put_back(self) -> None:
        for database in self.databases:
            database.put_back()


class RowEffects(Effects):
    """Effects in the rows of all tables of models, apart from the queue's own, and in the enqueued jobs."""

    def __init__(self, control: psycopg.Connection[Any], database: str) -> None:
        self.control = control
        self.database = database
        self.has_queue: bool = self._one("select to_regclass('pgqueue_message') is not null")
        self.tables = _tables(database)
        self.saved = {table.name: self._copied(table) for table in self.tables}
        self.sequences = self._sequences()
        self.known = {table.name: self._keys(table) for table in self.tables}
        self.last_id: int = self._one("select coalesce(max(last_value), 0) from pg_sequences "
                                      "where sequencename = 'pgqueue_message_id_seq'")  # fmt: skip
        self.learnt: list[dict[str, list[dict[str, Any]]]] = []
        self.fickle: dict[str, set[str]] = {table.name: set(table.generated) for table in self.tables}

    # Comparing

    def seen(self) -> dict[str, Counter[Any]]:
        return {
            name: Counter(
                tuple((column, repr(value)) for column, value in row.items() if column not in self.fickle.get(name, ()))
                for row in rows
            )
            for name, rows in self._rows().items()
        }

    def learn(self) -> None:
        """Finds the columns that differ between runs without a crash, such as times and random numbers."""
        self.learnt.append(self._rows())
        first, last = self.learnt[0], self.learnt[-1]
        for table in self.tables:
            for column in table.columns:
                values = [Counter(repr(row[column]) for row in run[table.name]) for run in (first, last)]
                if values[0] != values[1]:
                    self.fickle[table.name].add(column)

    def difference(self, expected: dict[str, Counter[Any]]) -> str:
        seen = self.seen()
        return "; ".join(_told(name, seen[name], expected[name]) for name in expected if seen[name] != expected[name])

    def _rows(self) -> dict[str, list[dict[str, Any]]]:
        rows = {table.name: self._rows_of(table) for table in self.tables}
        if not self.has_queue:
            return rows
        with self.control.cursor() as cursor:
            # Jobs that wait and jobs that have ended, without the task itself, whose queue is crash-*.
            cursor.execute(
                """
                select n.task, n.queue, n.priority, n.channel, n.unique_key, n.content::text
                from (
                    select m.id, m.task, m.queue, m.priority, m.channel, m.unique_key, m.content
                    from pgqueue_message m
                    union all
                    select a.message_id, a.task, a.queue, a.priority, a.channel, a.unique_key, a.content
                    from pgqueue_attempt a where a.final
                ) as n
                where n.id > %(last)s and n.queue not like 'crash-%%'
                order by n.id
                """,
                {"last": self.last_id},
            )
            names = ("task", "queue", "priority", "channel", "unique_key", "content")
            rows[JOBS] = [dict(zip(names, row, strict=True)) for row in cursor.fetchall()]
        return rows

    def _rows_of(self, table: WatchedTable) -> list[dict[str, Any]]:
        columns = sql.SQL(", ").join(sql.SQL("{}::text").format(sql.Identifier(name)) for name in table.columns)
        found = self.control.execute(sql.SQL("select {} from {}").format(columns, sql.Identifier(table.name)))
        rows = [dict(zip(table.columns, row, strict=True)) for row in found]
        for row in rows:
            for column, other in table.references.items():
                if row[column] is not None and row[column] not in self.known.get(other, ()):
                    row[column] = f"a new row of {other}"
        return rows

    def _keys(self, table: WatchedTable) -> set[str]:
        keys = self.control.execute(
            sql.SQL("select {}::text from {}").format(sql.Identifier(table.key), sql.Identifier(table.name))
        )
        return {key for [key] in keys}

    # Putting back

    def put_back(self) -> None:
        """Restores the rows and the sequences.  Django's foreign keys are checked at the commit."""
        with self.control.transaction():
            self.control.execute("set constraints all deferred")
            for table in self.tables:
                self.control.execute(sql.SQL("delete from {}").format(sql.Identifier(table.name)))
            for table in self.tables:
                with self.control.cursor() as cursor, cursor.copy(_copy(table, "from stdin")) as copy:
                    copy.write(self.saved[table.name])
            for name, value in self.sequences:
                self.control.execute(
                    "select setval(%s::regclass, coalesce(%s, 1), %s)", (name, value, value is not None)
                )
            if self.has_queue:
                self.control.execute("delete from pgqueue_message where id > %s", (self.last_id,))
                self.control.execute("delete from pgqueue_attempt where message_id > %s", (self.last_id,))

    def _copied(self, table: WatchedTable) -> bytes:
        with self.control.cursor() as cursor, cursor.copy(_copy(table, "to stdout")) as copy:
            return b"".join(bytes(part) for part in copy)

    def _sequences(self) -> list[tuple[str, int | None]]:
        found = self.control.execute(
            """
            select distinct format('%%I.%%I', s.schemaname, s.sequencename), s.last_value
            from pg_sequences s
            join pg_depend d on d.objid = format('%%I.%%I', s.schemaname, s.sequencename)::regclass
            where d.refobjid = any (select to_regclass(quote_ident(n)) from unnest(%s::text[]) as n)
            """,
            ([table.name for table in self.tables],),
        )
        return [(str(name), value) for name, value in found]

    def _one(self, query: str) -> Any:
        [[value]] = self.control.execute(query.encode()).fetchall()
        return value


def _copy(table: WatchedTable, how: str) -> sql.Composed:
    columns = sql.SQL(", ").join(map(sql.Identifier, table.columns))
    return sql.SQL("copy {} ({}) " + how).format(sql.Identifier(table.name), columns)


def _tables(database: str) -> list[WatchedTable]:
    connection = connections[database]
    with connection.cursor() as cursor:
        present = set(connection.introspection.table_names(cursor))
    found: dict[str, WatchedTable] = {}
    for model in apps.get_models(include_auto_created=True):
        meta: Any = model._meta  # noqa: SLF001
        if meta.app_label == APP_LABEL or meta.db_table not in present:
            continue
        if router.allow_migrate_model(database, model):
            found[meta.db_table] = _table(meta)
    return list(found.values())


def _table(meta: Any) -> WatchedTable:
    stored: list[Any] = [f for f in meta.local_concrete_fields if not getattr(f, "generated", False)]
    return WatchedTable(
        name=meta.db_table,
        columns=tuple(field.column for field in stored),
        generated=frozenset(f.column for f in stored if f.get_internal_type().endswith("AutoField")),
        references={f.column: f.remote_field.model._meta.db_table for f in stored if f.is_relation},  # noqa: SLF001
        key=meta.pk.column,
    )


def _told(name: str, seen: Counter[Any], expected: Counter[Any]) -> str:
    lines = (
        [f"{name} has {_rows(seen.total())} instead of {expected.total()}"] if seen.total() != expected.total() else []
    )
    for word, rows in (("too many", seen - expected), ("missing", expected - seen)):
        shown = [f"{{{', '.join(f'{c}: {v}' for c, v in row)}}}" for row in list(rows.elements())[:MAX_SHOWN]]
        if shown:
            lines.append(f"{word} in {name}: {', '.join(shown)}")
    return ", ".join(lines)


def _rows(number: int) -> str:
    return f"{number} row" if number == 1 else f"{number} rows"
