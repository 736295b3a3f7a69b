"""Puts back what a job has changed in its session with the server: settings, role, locks, temporary tables, cursors, …;
and in the driver's connection: autocommit, adapters, handlers, …

A client cannot know what a function in the database has changed, so the worker does not look: one message puts back
everything, for half again the price of an empty one.  It is sent only for sessions that the job has used.  psycopg's
``wait`` knows that: whatever goes through a connection passes there, from Django or not.  What a job has set in the
driver's connection can be seen, and is compared after each job.
"""

from __future__ import annotations

import time
import weakref
from operator import attrgetter
from typing import TYPE_CHECKING, Any

import psycopg
from psycopg.adapt import AdaptersMap
from psycopg.pq import ConnStatus, Escaping, ExecStatus, TransactionStatus

from django_pgqueue.consumer.wakeup import readable

if TYPE_CHECKING:
    from psycopg.pq.abc import PGconn, PGresult

# The settings that Django has made in the session.  RESET returns to those that came with the connection (OPTIONS,
# settings of the role or the database).
SET_AT_FIRST = b"""
select name, setting from pg_settings
where source = 'session' and name not in ('transaction_isolation', 'transaction_read_only', 'transaction_deferrable')
"""
IDENTITY = b"select session_user, current_setting('role')"

ATTRIBUTES = (
    "autocommit", "isolation_level", "read_only", "deferrable", "prepare_threshold", "prepared_max",
    "row_factory", "cursor_factory", "server_cursor_factory",
)  # fmt: skip
"""Every attribute of the driver's connection that a task may set."""
MAX_ANSWER_SECONDS = 5.0
"""A session that is silent for longer is taken for lost: where a network swallows packets, TCP waits for a quarter of
an hour, and no timeout of a job ends that."""
HANDLERS = ("_notice_handlers", "_notify_handlers")
ADAPTERS = ("_dumpers", "_dumpers_by_oid", "_loaders")

_attributes = attrgetter(*ATTRIBUTES)


class DriverState:
    """The driver's connection as it was after connecting, without anything that the server knows."""

    __slots__ = ("_adapters", "_attributes", "_handlers")

    def __init__(self, session: psycopg.Connection[Any]) -> None:
        self._attributes = _attributes(session)
        self._handlers = [list(handlers) for handlers in _handlers(session)]
        self._adapters = AdaptersMap(session.adapters)  # from now on the session changes a copy of its own

    def differs(self, session: psycopg.Connection[Any]) -> bool:
        return (
            _attributes(session) != self._attributes
            or _handlers(session) != self._handlers
            or _adapters(session.adapters) != _adapters(self._adapters)
        )

    def put_back(self, session: psycopg.Connection[Any]) -> None:
        """Only where no transaction is open: psycopg refuses it there."""
        for attribute, value in zip(ATTRIBUTES, self._attributes, strict=True):
            if getattr(session, attribute) != value:
                setattr(session, attribute, value)
        for handlers, before in zip(_handlers(session), self._handlers, strict=True):
            handlers[:] = before
        session._adapters = AdaptersMap(self._adapters)  # noqa: SLF001 -- nothing takes a registration back


def _handlers(session: psycopg.Connection[Any]) -> list[list[Any]]:
    return [getattr(session, name, []) for name in HANDLERS]


def _adapters(adapters: AdaptersMap) -> list[Any]:
    """Returns the tables of ``adapters``: the same objects, until something is registered."""
    return [getattr(adapters, name, None) for name in ADAPTERS]


class SessionState:
    """Replaces the connection's ``wait``: notes that the session is used, and how it was before."""

    __slots__ = ("__weakref__", "_reset", "_session", "driver", "is_being_put_back", "is_used")

    def __init__(self, session: psycopg.Connection[Any], *, pooled: bool) -> None:
        """``pooled``: the server's session is others' too, and is left as it is."""
        self.is_used = self.is_being_put_back = False
        self._session = weakref.ref(session)
        self.driver = DriverState(session)
        self._reset = None if pooled else _reset(session.pgconn)

    @property
    def session(self) -> psycopg.Connection[Any] | None:
        return self._session()

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        self.is_used = True
        session: Any = self._session()
        return type(session).wait(session, *args, **kwargs)

    def has_changed(self, session: psycopg.Connection[Any]) -> bool:
        """Whether something may have to be put back."""
        return (self.is_used and self._reset is not None) or self.driver.differs(session)

    def put_back(self, session: psycopg.Connection[Any]) -> None:
        """Raises psycopg's errors if that is not possible: the session must not be used any more."""
        if session.pgconn.transaction_status != TransactionStatus.IDLE:
            message = "It is in a transaction."
            raise psycopg.InterfaceError(message)
        if self._reset is not None and self.is_used:
            prepared = _execute(session.pgconn, self._reset)
            # Not DEALLOCATE ALL: psycopg would go on using the statements that it has prepared.
            for name in _column(prepared):
                _execute(session.pgconn, b"deallocate " + Escaping(session.pgconn).escape_identifier(name))
        if self.driver.differs(session):
            self.driver.put_back(session)


def driver_of(session: Any) -> psycopg.Connection[Any] | None:
    """Returns psycopg's connection for Django's: tracers and pools put an object of their own before it.  None: it is
    another driver's, or there is none.
    """
    wait = getattr(session, "wait", None)
    found = wait.session if isinstance(wait, SessionState) else getattr(wait, "__self__", None)
    return found if isinstance(found, psycopg.Connection) else None


def watch(session: psycopg.Connection[Any], *, pooled: bool) -> None:
    """Called when Django has just connected."""
    vars(session)["wait"] = SessionState(session, pooled=pooled)


def state_of(session: psycopg.Connection[Any] | None) -> SessionState | None:
    state = getattr(session, "wait", None)
    return state if isinstance(state, SessionState) else None


def _reset(pgconn: PGconn) -> bytes:
    """Returns the statements that bring a session back to where it is now."""
    # What follows in a new session would wait for a slow server, too: it is not the time to give up.
    settings = _checked(pgconn, pgconn.exec_(SET_AT_FIRST))
    [user], [role] = (_column(_checked(pgconn, pgconn.exec_(IDENTITY)), number) for number in (0, 1))
    escaping = Escaping(pgconn)
    statements = [b"close all", b"set session authorization default", b"reset all"]
    for name, value in zip(_column(settings), _column(settings, 1), strict=True):
        pair = escaping.escape_literal(name), escaping.escape_literal(value)
        statements.append(b"select set_config(%b, %b, false)" % pair)
    if user != pgconn.user:
        statements.append(b"set session authorization " + escaping.escape_identifier(user))
    statements.append(b"set role " + (b"none" if role == b"none" else escaping.escape_identifier(role)))
    statements += [
        b"unlisten *",
        b"select pg_advisory_unlock_all()",
        b"discard temp",
        b"discard sequences",
        b"select name from pg_prepared_statements where from_sql",
    ]
    return b"; ".join(statements)


def _execute(pgconn: PGconn, statements: bytes) -> PGresult:
    """Returns the result of the last statement."""
    return _checked(pgconn, answer(pgconn, statements))


def _checked(pgconn: PGconn, result: PGresult) -> PGresult:
    if result.status not in (ExecStatus.TUPLES_OK, ExecStatus.COMMAND_OK):
        error = psycopg.errors.error_from_result(result)
        # psycopg has no class for a session that ended without a word, and Django's pool may lend such a one.
        raise psycopg.OperationalError(*error.args) if pgconn.status == ConnStatus.BAD else error
    return result


def answer(pgconn: PGconn, statements: bytes) -> PGresult:
    """Returns the last result, as libpq's ``PQexec`` does, with an end to the wait.  Raises psycopg's errors."""
    pgconn.send_query(statements)
    pgconn.flush()
    until, last = time.monotonic() + MAX_ANSWER_SECONDS, None
    while True:
        while pgconn.is_busy():
            if not readable([pgconn.socket], max(0.0, until - time.monotonic())):
                pgconn.finish()  # what is asked next would find it busy
                message = f"the session has not answered for {MAX_ANSWER_SECONDS:g} seconds"
                raise psycopg.OperationalError(message)
            pgconn.consume_input()
        if (result := pgconn.get_result()) is None:
            break
        last = result
    if last is None:
        message = "the session has not answered"
        raise psycopg.OperationalError(message)
    return last


def _column(result: PGresult, number: int = 0) -> list[bytes]:
    return [result.get_value(row, number) or b"" for row in range(result.ntuples)]
