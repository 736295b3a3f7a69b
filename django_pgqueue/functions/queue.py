"""Queues: their names, pause and resume."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from django_pgqueue.functions.connection import Connection


def message_queues(connection: Connection) -> list[str]:
    """Returns the names of the queues that have waiting messages."""
    with connection.cursor() as cursor:
        cursor.execute("select pgqueue_message_queues()")
        return [row[0] for row in cursor.fetchall()]


def queue_pause(connection: Connection, queue: str, by: str | None) -> None:
    with connection.cursor() as cursor:
        cursor.execute("select pgqueue_queue_pause(%s, %s)", (queue, by))


def queue_resume(connection: Connection, queue: str) -> bool:
    with connection.cursor() as cursor:
        cursor.execute("select pgqueue_queue_resume(%s)", (queue,))
        return bool(cursor.fetchone()[0])
