"""The worker's own connection to the queue: Django's parameters, without Django's cursors and transactions."""

from __future__ import annotations

import contextlib
import math
import time
from typing import TYPE_CHECKING, Any

import psycopg
from django.db import connections
from psycopg import IsolationLevel, errors, sql
from psycopg.pq import Conninfo, Format
from psycopg.waiting import Ready, Wait

from django_pgqueue.consumer.forks import note_connection
from django_pgqueue.consumer.wakeup import readable

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Iterator

# A worker that lost its network finds out in about half a minute, not after the two hours of the system's default.
# While data that it has sent is not acknowledged, no keepalives go out: without tcp_user_timeout that lasts for a
# quarter of an hour.
KEEPALIVES = {
    "keepalives": 1,
    "keepalives_idle": 10,
    "keepalives_interval": 5,
    "keepalives_count": 3,
    "tcp_user_timeout": 25_000,
}
CONNECT_SECONDS = 10
"""A try in a network that swallows packets repeats them after 1, 2, 4, 8, ... seconds.  Without an end to it a worker
might come back long after the network has, when others have taken it for dead (gone.RETURN_SECONDS)."""

# A worker waits for work, and its messages are given to others when its session has ended.
SETTINGS = """
select set_config('timezone', 'UTC', false), set_config('idle_session_timeout', '0', false)
"""
# The server finds by these that the machine of a worker is gone, and ends its session, in the time after which others
# take a worker for dead (functions.MISSED_AFTER_MS).  Shorter times of the project stay.  On a socket of Unix
# they do nothing.
SERVER_KEEPALIVES = """
select set_config(k.name, k.value::text, false)
from (values ('tcp_keepalives_idle', 3), ('tcp_keepalives_interval', 1), ('tcp_keepalives_count', 3),
             ('tcp_user_timeout', 6000)) as k (name, value)
where current_setting(k.name, true)::integer not between 1 and k.value
"""


class BinaryCursor(psycopg.Cursor[Any]):
    """Asks for results in binary: reading two timestamps a message as text would cost more than all the rest."""

    def __init__(self, connection: Any, **kwargs: Any) -> None:
        super().__init__(connection, **kwargs)
        self.format = Format.BINARY


def listen(connection: psycopg.Connection[Any], consumer: str) -> None:
    """Listens to the notifications for ``consumer``.  A connection that cannot listen may not stay open."""
    try:
        connection.execute(sql.SQL("listen {}").format(sql.Identifier(f"pgqueue_{consumer}")))
    except BaseException:
        connection.close()
        raise


MAX_READS_AHEAD = 50
ANSWER_SECONDS = 300.0
"""The keepalives find nothing wrong where something between the worker and the server acknowledges what it gets and
passes nothing on, as a pooler that hangs.  A statement of a consumer takes a minute at most (``statement_timeout``).
PgBouncer may let it wait for two before that (``query_wait_timeout``)."""


def answer_seconds() -> float:
    """Returns how long a consumer waits for an answer that nothing makes urgent."""
    return ANSWER_SECONDS


class WorkerConnection(psycopg.Connection[Any]):
    """Reads the rest of an answer as soon as it has begun to come, and does not wait for an answer for ever.

    An answer of some hundred messages takes a dozen reads.  psycopg waits before each of them, and releases the
    interpreter lock to do so; in a worker whose slots are busy it then waits for the lock, up to 5 ms each time.
    """

    answer_seconds: Callable[[], float] = staticmethod(answer_seconds)
    """The connection is closed when nothing has come for so long.  It is asked ten times a second during a wait."""

    def wait(self, gen: Generator[Any, Any, Any], *args: Any, **kwargs: Any) -> Any:
        return super().wait(self._reading_ahead(gen), *args, **kwargs)

    def _reading_ahead(self, gen: Generator[Any, Any, Any]) -> Generator[Any, Any, Any]:
        silent_since = None
        try:
            wanted = next(gen)
            while True:
                ready = yield wanted
                silent_since = None if ready else self._silent(silent_since)
                wanted = gen.send(ready)
                if ready and ready & Ready.R:
                    for _ in range(MAX_READS_AHEAD):  # a read that finds nothing yet takes a microsecond
                        if wanted != Wait.R:
                            break
                        wanted = gen.send(Ready.R)
        except StopIteration as end:
            return end.value

    def _silent(self, since: float | None) -> float:
        """Called ten times a second while nothing comes.  Returns since when nothing has come."""
        now = time.monotonic()
        if since is None:
            return now
        # A slot may have held the interpreter lock for long, and an answer may have come meanwhile.
        if now - since > self.answer_seconds() and not readable([self.pgconn.socket], 0):
            self.pgconn.finish()
            message = f"the session has not answered for {now - since:.0f} seconds"
            raise psycopg.OperationalError(message)
        return since


@contextlib.contextmanager
def assuming() -> Iterator[None]:
    """A role that may not be assumed, or that is gone, is no connection yet, as a login that is refused."""
    try:
        yield
    except (errors.InsufficientPrivilege, errors.InvalidParameterValue) as error:
        raise psycopg.OperationalError(str(error)) from error


def of_libpq(params: dict[str, Any]) -> dict[str, Any]:
    """Leaves out what is for Django's cursors, and what a backend has added for a pool of its own, such as the
    ``MAX_CONNS`` of django-db-geventpool.
    """
    known = {option.keyword.decode() for option in Conninfo.get_defaults()}
    return {name: value for name, value in params.items() if name in known}


def connect(
    database: str, *, pooled: bool = False, answer_seconds: Callable[[], float] = answer_seconds
) -> WorkerConnection:
    """Opens an autocommit connection.  psycopg prepares nothing on it: after a rollback it would drop what the session
    has prepared, that of ``Statements`` too, and poolers give every transaction another session.

    ``pooled``: nothing is set for the session, because the clients of a transaction pooler share it.
    ``answer_seconds``: see ``WorkerConnection``.
    """
    wrapper = connections.create_connection(database)
    params = of_libpq(wrapper.get_connection_params())
    connection = WorkerConnection.connect(
        **(KEEPALIVES | {"connect_timeout": min(CONNECT_SECONDS, math.ceil(answer_seconds()))} | params),
        autocommit=True,
        cursor_factory=BinaryCursor,
        prepare_threshold=None,
    )
    connection.answer_seconds = answer_seconds
    note_connection(connection)
    # Whatever level the application uses: a claim that waits for no other session needs no more than this.
    connection.isolation_level = IsolationLevel.READ_COMMITTED
    if pooled:
        return connection
    try:
        if role := wrapper.settings_dict["OPTIONS"].get("assume_role"):
            with assuming():
                connection.execute(sql.SQL("set role {}").format(sql.Identifier(role)))
        connection.execute("set session characteristics as transaction isolation level read committed")
        connection.execute(SETTINGS)
        connection.execute(SERVER_KEEPALIVES)
    except BaseException:
        connection.close()
        raise
    return connection
