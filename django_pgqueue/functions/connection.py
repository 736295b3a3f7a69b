"""What the calls have in common: the connection that they work on."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    from collections.abc import Iterable


class Connection(Protocol):
    def cursor(self) -> Any: ...


def answered_ids(connection: Connection, sql: str, params: tuple[Any, ...]) -> set[int]:
    with connection.cursor() as cursor:
        cursor.execute(sql, params)
        return {row[0] for row in cursor.fetchall()}


def may_read(connection: Connection, table: str) -> bool:
    """A producer (sql/roles.sql) may not, and to be refused would break its transaction."""
    with connection.cursor() as cursor:
        cursor.execute("select has_table_privilege(%s, 'select')", (table,))
        return bool(cursor.fetchone()[0])


def array_of(items: Iterable[object]) -> str:
    """An array's text, of items without commas or quotes: psycopg's general way costs ten times as much."""
    return f"{{{','.join(map(str, items))}}}"
