"""The roll-up: figures of the ended attempts by queue and task."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from django_pgqueue.functions.connection import Connection


def rollup_add(connection: Connection, *, every_seconds: int = 0) -> bool:
    """Adds what has ended since the last call, and returns whether there is more."""
    with connection.cursor() as cursor:
        cursor.execute("select pgqueue_rollup_add(%s)", (every_seconds,))
        return bool(cursor.fetchone()[0])


def rollup_prune(connection: Connection) -> int:
    """Deletes old figures, and returns how many."""
    with connection.cursor() as cursor:
        cursor.execute("select pgqueue_rollup_prune()")
        return int(cursor.fetchone()[0])
