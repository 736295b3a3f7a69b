"""The advisory lock of a consumer, held by its sessions: while one of them lasts, others know that it lives."""

from __future__ import annotations

from typing import TYPE_CHECKING

from django_pgqueue import functions

if TYPE_CHECKING:
    from django_pgqueue.consumer.session import Session


class Hold:
    """Takes the lock once in each connection of a thread.  That thread alone calls it."""

    def __init__(self) -> None:
        self._connection: object = None
        self._held: dict[str, bool] = {}

    def take(self, session: Session, consumer: str) -> bool:
        """Returns whether the session holds the lock of ``consumer``.  One behind a pooler never does: the server's
        session does not end with the consumer.
        """
        if session.pooled:
            return False
        if self._connection is not session.connection:
            self._connection, self._held = session.connection, {}
        if consumer not in self._held:
            self._held[consumer] = functions.worker_hold(session.statements, consumer)
        return self._held[consumer]
