"""A consumer's session with the queue: one connection, opened again when it breaks."""

from __future__ import annotations

import contextlib
import logging
import time
from typing import TYPE_CHECKING, Any, Self

import psycopg
from django.db import connections
from psycopg.pq import TransactionStatus

from django_pgqueue import functions
from django_pgqueue.consumer.connection import answer_seconds, assuming, connect, listen
from django_pgqueue.consumer.errors import first_line, is_of_no_use
from django_pgqueue.consumer.statements import Statements

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from django_pgqueue.consumer.connection import WorkerConnection
    from django_pgqueue.functions.connection import Connection

logger = logging.getLogger("django_pgqueue.worker")

MIN_RECONNECT_SECONDS, MAX_RECONNECT_SECONDS = 0.1, 5.0
SOON_RECONNECT_SECONDS = 1.0
"""The longest pause while others still take the consumer for living: until ``MISSED_AFTER_MS`` after the break."""

IDLE_IN_TRANSACTION_MS = 30_000
"""A process that stands still (SIGSTOP, a paused container) may have a transaction open, and others would wait for its
locks, such as those of a day of the history that it drops.  A consumer itself never waits that long within one."""

FLUSH_SECONDS = 60.0
"""A job that crashes the server at once takes its claim along, which has not reached the disk: no attempt is used up,
and it is claimed, and crashes the server, without end.  So claims wait for the disk for so long when a claim may have
been lost."""

# A shorter limit of the database, the role or the project's OPTIONS stays.
BEGIN = """
select concat_ws('/', extract(epoch from pg_postmaster_start_time()), d.oid), (
    select count(set_config(l.name, l.milliseconds::text, p.local))
    from unnest(p.names, p.milliseconds) as l (name, milliseconds)
    where current_setting(l.name) = '0' or current_setting(l.name)::interval > l.milliseconds * interval '1 millisecond'
), case when p.role is not null then set_config('role', p.role, p.local) end
from (values (%s, %s::text[], %s::bigint[], %s::text)) as p (local, names, milliseconds, role), pg_database d
where d.datname = current_database()
"""


class Session:
    """The connection and the statements of one thread: the consumer's, or that of a ``Background``.

    ``row_wait_ms``: how long a statement waits at most for a row that another session has locked, before it ends in
    LockNotAvailable.
    ``statement_ms``: how long it may take at all.
    ``answer_seconds``: returns how long a session may be silent that owes an answer.
    """

    def __init__(
        self,
        database: str,
        *,
        consumer: str,
        pooled: bool,
        notified: Callable[[bool], None] | None = None,
        parked: Callable[[], None] | None = None,
        kind: str = "worker",
        row_wait_ms: int = 0,
        statement_ms: int = 0,
        answer_seconds: Callable[[], float] = answer_seconds,
        renamed: Callable[[], str] | None = None,
    ) -> None:
        """``pooled``: each transaction may have another server session, so nothing in the session may outlive it.
        ``notified``: called for each notification to the consumer that a message is ready, with whether that comes
        from another consumer that can take no more.  ``parked``: called for a notification that messages were parked,
        which it may know.  ``kind``: what the log calls the consumer.
        ``renamed``: called when the server was started since the last connection, or has another database of that name,
        as after a restore; returns another name for the consumer.  Such a server may have lost its last commits, and
        give their ids to other messages: no token of the consumer's may be valid for those.
        """
        self.database = database
        self.consumer = consumer
        self.kind = kind
        self.pooled = pooled
        self.notified = notified
        self.parked = parked
        self.renamed = renamed
        self.answer_seconds = answer_seconds
        self.limits = {
            "lock_timeout": row_wait_ms,
            "statement_timeout": statement_ms,
            "idle_in_transaction_session_timeout": IDLE_IN_TRANSACTION_MS,
        }
        self.connection: WorkerConnection
        self.statements: Connection
        """The same connection, as the queue's functions need it."""
        self.server: str | None = None
        """When the server was started, and which database it is: another one after a failover or a restore."""
        self.reconnect_at, self.reconnect_seconds = 0.0, MIN_RECONNECT_SECONDS
        self._flush_until = 0.0
        self._opened_at = float("inf")
        self._broken_at = 0.0
        """When the first of the present errors came."""

    @property
    def is_closed(self) -> bool:
        return self.connection.closed

    @property
    def is_left_alone(self) -> bool:
        """Whether it is closed, or a statement has just failed for a reason that the next one would meet as well, such
        as a full disk.
        """
        return self.is_closed or time.monotonic() < self.reconnect_at

    def open(self) -> WorkerConnection:
        connection = connect(self.database, pooled=self.pooled, answer_seconds=self.answer_seconds)
        try:
            with connection.transaction():
                server = self._begin(connection, local=self.pooled)
            if self.server is not None and server != self.server and self.renamed is not None:
                self.consumer = self.renamed()
            self.server = server
            if self.notified is not None and not self.pooled:
                connection.add_notify_handler(lambda note: self._take(note.payload))
                listen(connection, self.consumer)
        except BaseException:
            connection.close()
            raise
        self.connection, self._opened_at = connection, time.monotonic()
        # A pooler may give the next transaction a server session that knows nothing of what was prepared.
        self.statements = PooledStatements(self) if self.pooled else Statements(connection)
        return connection

    @contextlib.contextmanager
    def transaction(self) -> Iterator[None]:
        """Several statements in one transaction."""
        with self.connection.transaction():
            if self.pooled and self._begin(self.connection, local=True) != self.server:
                self.connection.close()
                message = "the pooler is now connected to another server"
                raise psycopg.OperationalError(message)
            yield

    def _begin(self, connection: psycopg.Connection[Any], *, local: bool) -> str | None:
        """Sets the time-outs and, if ``local``, the role, which a pooler would give to others.  Returns which server
        and database it is: how many time-outs were set depends on the defaults of the role and the database.
        """
        role = connections[self.database].settings_dict["OPTIONS"].get("assume_role") if local else None
        limits = {name: milliseconds for name, milliseconds in self.limits.items() if milliseconds}
        parameters = [local, list(limits), list(limits.values()), role]
        with assuming():
            [server, _, _] = connection.execute(BEGIN, parameters).fetchone() or (None, None, None)
        return server

    def reopen_if_due(self) -> bool:
        """Returns whether it was closed, and is open again."""
        if not self.is_closed or time.monotonic() < self.reconnect_at:
            return False
        self.open()
        self.begin_to_flush()
        line = f"reconnected {self.kind}=%s"
        logger.info(line, self.consumer)
        return True

    @property
    def flushes(self) -> bool:
        """Whether the server may have crashed within the last minute."""
        return time.monotonic() < self._flush_until

    def begin_to_flush(self) -> None:
        """Called when the server may have lost claims in a crash."""
        self._flush_until = time.monotonic() + FLUSH_SECONDS

    def flush_claims(self) -> None:
        """Waits for the disk if need be.  Called after a claim, before anything of it begins: in a transaction, the
        commit waits.
        """
        if self.flushes:
            functions.flush(self.statements)

    def failed(self, error: Exception) -> float:
        """Takes note of an error of the connection, and returns for how many seconds to leave the database alone: the
        longer, the more connections have broken soon after they were opened.
        """
        now = time.monotonic()
        if now - self._opened_at > MAX_RECONNECT_SECONDS:
            self.reconnect_seconds = MIN_RECONNECT_SECONDS
        seconds = self.reconnect_seconds
        if seconds == MIN_RECONNECT_SECONDS:
            self._broken_at = now
        line = f"database error {self.kind}=%s retry_in_seconds=%.1f: %s"
        logger.warning(line, self.consumer, seconds, first_line(error))
        if is_of_no_use(self.connection, error):
            self.connection.close()
        self.reconnect_at = time.monotonic() + seconds
        self._opened_at = float("inf") if self.is_closed else self.reconnect_at
        is_missed = now - self._broken_at >= functions.MISSED_AFTER_MS / 1000
        self.reconnect_seconds = min(MAX_RECONNECT_SECONDS if is_missed else SOON_RECONNECT_SECONDS, 2 * seconds)
        return seconds

    def take_notifications(self) -> None:
        self.connection.pgconn.consume_input()
        while (note := self.connection.pgconn.notifies()) is not None:
            self._take(note.extra)

    def _take(self, payload: str | bytes) -> None:
        """The payload is the name of a queue that has work, or empty where messages were parked."""
        if not payload and self.parked is not None:
            self.parked()
        elif self.notified is not None:
            self.notified(payload[-1:] in {"\n", b"\n"})


class PooledStatements:
    """The connection that ``django_pgqueue.functions`` need, where a transaction pooler hands out another server
    session for each transaction.

    The settings of a statement are those of its transaction alone, because the next transaction on that server session
    is the application's.
    """

    def __init__(self, session: Session) -> None:
        self._session = session
        self._cursor = session.connection.cursor()

    def cursor(self) -> Self:
        return self

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        pass

    def __getattr__(self, name: str) -> Any:
        return getattr(self._cursor, name)

    def execute(self, sql: str, params: Sequence[Any] = ()) -> None:
        idle = self._session.connection.info.transaction_status == TransactionStatus.IDLE
        with self._session.transaction() if idle else contextlib.nullcontext():
            self._cursor.execute(sql.encode(), params or None)
