"""A consumer's session with the queue: one connection, opened again when it breaks."""

from __future__ import annotations

import logging
import time
from typing import TYPE_CHECKING, Any

from django_pgqueue.worker.connection import connect, is_of_no_use, listen
from django_pgqueue.worker.statements import Statements

if TYPE_CHECKING:
    from collections.abc import Callable

    import psycopg

    from django_pgqueue.functions.connection import Connection

logger = logging.getLogger("django_pgqueue.worker")

SHORTEST_RECONNECT_SECONDS, LONGEST_RECONNECT_SECONDS = 0.1, 5.0


class Session:
    def __init__(
        self, database: str, *, consumer: str, listen: bool, notified: Callable[[], None], kind: str = "worker"
    ) -> None:
        """``kind``: what the log calls the consumer."""
        self.database = database
        self.consumer = consumer
        self.kind = kind
        self.listen = listen
        self.notified = notified
        self.connection: psycopg.Connection[Any]
        self.statements: Connection
        """The same connection, for the queue's functions."""
        self.reconnect_at, self.reconnect_seconds = 0.0, SHORTEST_RECONNECT_SECONDS

    @property
    def is_closed(self) -> bool:
        return self.connection.closed

    def open(self) -> psycopg.Connection[Any]:
        connection = connect(self.database)
        connection.add_notify_handler(lambda _: self.notified())
        if self.listen:
            listen(connection, self.consumer)
        self.connection = connection
        # A pooler may give the next transaction a server session that knows nothing of what was prepared.
        self.statements = Statements(connection) if self.listen else connection
        return connection

    def reopen_if_due(self) -> bool:
        """True: it was closed, and is open again."""
        if not self.is_closed or time.monotonic() < self.reconnect_at:
            return False
        self.open()
        self.reconnect_seconds = SHORTEST_RECONNECT_SECONDS
        line = f"reconnected {self.kind}=%s"
        logger.info(line, self.consumer)
        return True

    def failed(self, error: Exception) -> float:
        """Takes note of an error of the connection, and answers for how many seconds to leave the database alone."""
        seconds = self.reconnect_seconds
        line = f"database error {self.kind}=%s retry_in_seconds=%.1f: %s"
        logger.warning(line, self.consumer, seconds, error)
        if is_of_no_use(self.connection, error):
            self.connection.close()
        self.reconnect_at = time.monotonic() + seconds
        self.reconnect_seconds = min(LONGEST_RECONNECT_SECONDS, 2 * seconds)
        return seconds

    def take_notifications(self) -> None:
        self.connection.pgconn.consume_input()
        while self.connection.pgconn.notifies():
            self.notified()
