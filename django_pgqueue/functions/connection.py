"""The connection of a call, and helpers that all calls share."""

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
    """Whether there is such a table, and the login may read it: producers (sql/roles.sql) may not, an older queue may
    lack it, and an error would break a transaction.
    """
    with connection.cursor() as cursor:
        cursor.execute("select coalesce(has_table_privilege(to_regclass(%s), 'select'), false)", (table,))
        return bool(cursor.fetchone()[0])


def refusal_of(error: Exception) -> str:
    """Returns why PostgreSQL refused a call, and its hint, whichever language it speaks."""
    said = getattr(error.__cause__, "diag", None)  # Django's errors have that of psycopg
    if said is None or said.message_primary is None:
        return str(error)
    return str(said.message_primary) if said.message_hint is None else f"{said.message_primary}. {said.message_hint}"


def array_of(items: Iterable[object]) -> str:
    """Returns an array as text, of items without commas or quotes: psycopg's own adaption takes ten times as long."""
    return f"{{{','.join(map(str, items))}}}"
