"""Queues: their names, pause and resume."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from django_pgqueue.functions.installed import explained

if TYPE_CHECKING:
    from collections.abc import Sequence

    from django_pgqueue.functions.connection import Connection


class Backlog(NamedTuple):
    """The work that waits for workers.  The counts end at 10,000."""

    ready: int
    """Tasks that a worker could begin now."""
    oldest_wait_ms: int | None
    """For how long the first of them has been waiting.  None: nothing is ready."""
    running: int


def backlog(connection: Connection, queues: Sequence[str] | None = None) -> Backlog:
    """Returns what there is to do in the queues (None: in all), at a bounded cost.

    >>> backlog(connection, ["mail"])  # doctest: +SKIP
    Backlog(ready=12, oldest_wait_ms=340, running=4)
    """
    with explained(getattr(connection, "alias", "default")), connection.cursor() as cursor:
        cursor.execute("select * from pgqueue_backlog(%s::text[])", (None if queues is None else list(queues),))
        return Backlog(*cursor.fetchone())


def message_queues(connection: Connection, limit: int) -> list[str]:
    """Returns the names of queues that have waiting messages.  The limit is also one of what it costs."""
    with connection.cursor() as cursor:
        cursor.execute("select pgqueue_message_queues(%s)", (limit,))
        return [row[0] for row in cursor.fetchall()]


def queue_pause(connection: Connection, queue: str, by: str | None) -> None:
    with connection.cursor() as cursor:
        cursor.execute("select pgqueue_queue_pause(%s, %s)", (queue, by))


def queue_resume(connection: Connection, queue: str) -> bool:
    with connection.cursor() as cursor:
        cursor.execute("select pgqueue_queue_resume(%s)", (queue,))
        return bool(cursor.fetchone()[0])
