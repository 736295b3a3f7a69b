"""The history of attempts that have ended."""

from __future__ import annotations

from typing import TYPE_CHECKING

from django_pgqueue.functions.connection import answered_ids

if TYPE_CHECKING:
    from collections.abc import Iterable

    from django_pgqueue.functions.connection import Connection


def attempt_enqueue(connection: Connection, attempt_ids: Iterable[int]) -> list[int]:
    """Enqueues finished messages again and answers the ids of the new ones."""
    return sorted(answered_ids(connection, "select pgqueue_attempt_enqueue(%s::bigint[])", (sorted(attempt_ids),)))


def attempt_maintain(connection: Connection, *, days_ahead: int = 7, days_kept: int | None = None) -> int:
    """Makes and drops partitions of the history and answers how many."""
    with connection.cursor() as cursor:
        cursor.execute("select pgqueue_attempt_maintain(%s, %s)", (days_ahead, days_kept))
        return int(cursor.fetchone()[0])
