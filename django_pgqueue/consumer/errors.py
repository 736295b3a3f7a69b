"""The cause of an error: the connection, a lock of another session, or the values in the statement."""

from __future__ import annotations

from typing import TYPE_CHECKING

import psycopg
from psycopg import errors
from psycopg.pq import TransactionStatus

if TYPE_CHECKING:
    from collections.abc import Iterator

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
    errors.ConfigurationLimitExceeded,  # rows that need a larger temporary file than temp_file_limit
    errors.InternalError_,  # "invalid memory alloc request size": a value that is too large for the server
    errors.RaiseException,  # of a trigger, as are the next three
    errors.NoDataFound,
    errors.TooManyRows,
    errors.AssertFailure,
    errors.DependentObjectsStillExist,  # a day of the history that somebody's view needs
    UnicodeError,  # text that cannot be encoded, found before anything is sent
)
"""The values are at fault, so the next try ends the same way."""

GIVES_IDS = ("GetNewTransactionId", "GetNewMultiXactId")
"""The functions of PostgreSQL that refuse to go on shortly before a wraparound of their ids, until somebody has
vacuumed.  The SQLSTATE is that of a value that is too large, and the words are those of the server's language."""

CLASSES_OF_TRIGGERS = ("09", "20", "21", "27", "2F", "38", "39", "44")
"""The first characters of the SQLSTATEs of a trigger that is wrong: it has no ``return``, say."""
CLASSES_OF_THE_SERVER = ("08", "25", "28", "40", "42", "53", "55", "57", "58", "XX")
"""The first characters of the SQLSTATEs that say nothing about the values."""

CONFLICTS = ("40001", "40P01")
"""The SQLSTATEs of a serialization failure and of a deadlock: the transaction may well succeed the next time."""
MAX_RESTARTS = 3
"""How often the transaction of an atomic task, or of an atomic step, is begun anew within one attempt, after a conflict
with another one."""
RESTART_SECONDS = 0.01


def is_of_no_use(connection: psycopg.Connection[object], error: Exception) -> bool:
    """Whether ``connection`` has to be opened anew after ``error``.  Instead of a read-only server, the next connection
    may reach another one.  A session that still owes an answer refuses all else: a file that was closed under it, say.
    """
    owes_an_answer = connection.info.transaction_status == TransactionStatus.ACTIVE
    return connection.broken or owes_an_answer or isinstance(error, errors.ReadOnlySqlTransaction)


def is_of_the_connection(connection: psycopg.Connection[object], error: Exception) -> bool:
    """Whether any other statement would have failed too: nothing more is worth a try before a pause."""
    if is_of_no_use(connection, error):
        return True
    return isinstance(error, CONNECTION_ERRORS) and not isinstance(error, BUSY_ERRORS) and not is_refused(error)


def is_refused(error: Exception) -> bool:
    """Whether the values are at fault."""
    if is_wraparound(error):
        return False
    sqlstate = getattr(error, "sqlstate", None) or ""
    return isinstance(error, REFUSED_ERRORS) or sqlstate[:2] in CLASSES_OF_TRIGGERS or _has_a_code_of_its_own(error)


def is_wraparound(error: Exception) -> bool:
    """Whether the server has no ids for transactions that write."""
    return isinstance(error, errors.ProgramLimitExceeded) and error.diag.source_function in GIVES_IDS


def _has_a_code_of_its_own(error: Exception) -> bool:
    """Whether a trigger has raised it, with a code that PostgreSQL has not.  psycopg has no class for it, and goes by
    the first characters: ``PT409`` is a ProgrammingError, as a right that is missing is.
    """
    if not isinstance(error, psycopg.Error) or error.sqlstate is None or type(error).sqlstate is not None:
        return False
    return error.sqlstate[:2] not in CLASSES_OF_THE_SERVER


def first_line(error: Exception) -> str:
    """Returns the error in a line for logs, without what PostgreSQL adds as detail, context and hint.  Where several
    addresses were tried, it has the error of each: psycopg begins with the last one, which may be a standby's.
    """
    first, *others = str(error).strip().split("\n")
    tried = [line.partition(", hostaddr: ")[2].partition(": ")[2] for line in others if line.startswith("- host: ")]
    return ("; ".join(tried) or first)[:500] or type(error).__qualname__


def is_conflict(exception: BaseException) -> bool:
    """Whether a conflict with another transaction is the reason of ``exception``."""
    return any(issubclass(type(cause), psycopg.Error) and cause.sqlstate in CONFLICTS for cause in causes(exception))  # type: ignore[attr-defined]


def causes(exception: BaseException | None) -> Iterator[BaseException]:
    """Yields ``exception``, what it was raised from, and what that was raised from.

    It does not ask the exceptions: a class of the project's may refuse.
    """
    seen: set[int] = set()
    while exception is not None and id(exception) not in seen:
        seen.add(id(exception))
        yield exception
        cause, context = (vars(BaseException)[name].__get__(exception) for name in ("__cause__", "__context__"))
        exception = cause if cause is not None else context
