"""The cause of an error: the connection, a lock of another session, or the values in the statement."""

from __future__ import annotations

import psycopg
from psycopg import errors

CONNECTION_ERRORS = (psycopg.OperationalError, psycopg.InterfaceError, psycopg.InternalError)
"""Errors that may be gone on another try, or on another connection.  Not only those that psycopg calls operational: to
it, a time-out that ends an idle transaction, and a server that is still read-only, are internal errors."""

BUSY_ERRORS = (
    errors.LockNotAvailable,
    errors.QueryCanceled,
    errors.DeadlockDetected,
    errors.SerializationFailure,
)
"""Another session is in the way.  The connection is as good as before, and so is the statement."""

REFUSED_ERRORS = (
    psycopg.DataError,
    psycopg.IntegrityError,
    errors.ProgramLimitExceeded,  # text that is too large for jsonb
    errors.StatementTooComplex,  # jsonb that is nested too deeply for the server's stack
    errors.OutOfMemory,
    errors.InternalError_,  # "invalid memory alloc request size": a value that is too large for the server
    errors.RaiseException,  # of a trigger
    UnicodeError,  # text that cannot be encoded, found before anything is sent
)
"""The values are at fault, so the next try ends the same way."""


def is_of_no_use(connection: psycopg.Connection[object], error: Exception) -> bool:
    """Whether ``connection`` has to be opened anew after ``error``.  Instead of a read-only server, the next connection
    may reach another one.
    """
    return connection.broken or isinstance(error, errors.ReadOnlySqlTransaction)


def is_of_the_connection(connection: psycopg.Connection[object], error: Exception) -> bool:
    """Whether any other statement would have failed too: nothing more is worth a try before a pause."""
    if is_of_no_use(connection, error):
        return True
    if isinstance(error, (*BUSY_ERRORS, *REFUSED_ERRORS)):
        return False
    return isinstance(error, CONNECTION_ERRORS)


def first_line(error: Exception) -> str:
    """Returns the error in a line for logs, without what PostgreSQL adds as detail, context and hint."""
    return str(error).strip().partition("\n")[0][:500] or type(error).__qualname__
