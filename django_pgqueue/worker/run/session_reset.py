"""Puts back what a job has changed in its session with the server: settings, role, locks, temporary tables, cursors, …

A client cannot know what a function in the database has changed, so the worker does not look: one message puts back
everything, for half again the price of an empty one.  It is sent only for sessions that the job has used.  psycopg's
``wait`` knows that: whatever goes through a connection passes there, from Django or not.
"""

from __future__ import annotations

import weakref
from typing import TYPE_CHECKING, Any

import psycopg
from psycopg.pq import Escaping, ExecStatus, TransactionStatus

if TYPE_CHECKING:
    from psycopg.pq.abc import PGconn, PGresult

# The settings that Django has made in the session.  RESET returns to those that came with the connection (OPTIONS,
# settings of the role or the database).
SET_AT_FIRST = b"""
select name, setting from pg_settings
where source = 'session' and name not in ('transaction_isolation', 'transaction_read_only', 'transaction_deferrable')
"""
IDENTITY = b"select session_user, current_setting('role')"

ATTRIBUTES = ("isolation_level", "read_only", "deferrable", "prepare_threshold", "row_factory", "cursor_factory")
"""Attributes of the driver's connection that a task may set."""


class SessionState:
    """Replaces the connection's ``wait``: notes that the session is used, and how it was before."""

    __slots__ = ("__weakref__", "_attributes", "_reset", "_session", "is_being_put_back", "is_used")

    def __init__(self, session: psycopg.Connection[Any]) -> None:
        self.is_used = self.is_being_put_back = False
        self._session = weakref.ref(session)
        self._attributes = {name: getattr(session, name) for name in ATTRIBUTES}
        self._reset = _reset(session.pgconn)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        self.is_used = True
        session: Any = self._session()
        return type(session).wait(session, *args, **kwargs)

    def put_back(self, session: psycopg.Connection[Any]) -> None:
        """Raises psycopg's errors if that is not possible: the session must not be used any more."""
        if session.pgconn.transaction_status != TransactionStatus.IDLE:
            message = "It is in a transaction."
            raise psycopg.InterfaceError(message)
        prepared = _execute(session.pgconn, self._reset)
        # Not DEALLOCATE ALL: psycopg would go on using the statements that it has prepared.
        for name in _column(prepared):
            _execute(session.pgconn, b"deallocate " + Escaping(session.pgconn).escape_identifier(name))
        for attribute, value in self._attributes.items():
            if getattr(session, attribute) != value:
                setattr(session, attribute, value)


def watch(session: Any) -> None:
    """Called when Django has just connected."""
    if isinstance(session, psycopg.Connection):
        vars(session)["wait"] = SessionState(session)


def state_of(session: Any) -> SessionState | None:
    state = getattr(session, "wait", None)
    return state if isinstance(state, SessionState) else None


def _reset(pgconn: PGconn) -> bytes:
    """Returns the statements that bring a session back to where it is now."""
    settings = _execute(pgconn, SET_AT_FIRST)
    [user], [role] = (_column(_execute(pgconn, IDENTITY), number) for number in (0, 1))
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
    result = pgconn.exec_(statements)
    if result.status not in (ExecStatus.TUPLES_OK, ExecStatus.COMMAND_OK):
        raise psycopg.errors.error_from_result(result)
    return result


def _column(result: PGresult, number: int = 0) -> list[bytes]:
    return [result.get_value(row, number) or b"" for row in range(result.ntuples)]
