"""What the calls have in common: the connection that they work on."""

from __future__ import annotations

from typing import Any, Protocol


class Connection(Protocol):
    def cursor(self) -> Any: ...


def answered_ids(connection: Connection, sql: str, params: tuple[Any, ...]) -> set[int]:
    with connection.cursor() as cursor:
        cursor.execute(sql, params)
        return {row[0] for row in cursor.fetchall()}
