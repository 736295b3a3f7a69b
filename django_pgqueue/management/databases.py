"""The databases of a command: the named one, or all that hold a queue."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING

from django.core.management.base import CommandError
from django.db import DatabaseError, InternalError, OperationalError, ProgrammingError, connections
from psycopg.errors import InsufficientPrivilege, ReadOnlySqlTransaction

from django_pgqueue import functions
from django_pgqueue.backend.lookup import databases
from django_pgqueue.exceptions import OutdatedQueue

if TYPE_CHECKING:
    from collections.abc import Iterator


def asked(alias: str | None, *, returncode: int = 1) -> list[str]:
    """Returns ``[alias]``, or all databases for None."""
    known = sorted(databases())
    if alias is not None and alias not in known:
        message = f"TASKS names no queue in the database {alias!r} (it names: {', '.join(known) or 'none'})."
        raise CommandError(message, returncode=returncode)
    chosen = known if alias is None else [alias]
    if missing := [name for name in chosen if name not in connections.settings]:
        message = (
            f"DATABASES has no {missing[0]!r}. Name one of {', '.join(connections.settings)} as DATABASE in OPTIONS."
        )
        raise CommandError(message, returncode=returncode)
    return chosen


@contextmanager
def with_its_queue(alias: str) -> Iterator[None]:
    """Ends a command with the remedy if the database lacks what it needs, does not answer, or refuses the login."""
    reach(alias)
    try:
        with functions.explained(alias):
            yield
    except OutdatedQueue as error:
        raise CommandError(error) from error
    except (OperationalError, InternalError) as error:  # internal: transaction_timeout has ended the session
        connections[alias].close()  # the next query opens a new one
        advice = "Try again; manage.py qdoctor shows locks and other causes."
        if isinstance(error.__cause__, ReadOnlySqlTransaction):
            advice = "Name the primary in DATABASES if this is a standby; manage.py qdoctor shows other causes."
        raise CommandError(unanswered(alias, error, advice=advice)) from error
    except ProgrammingError as error:
        if not isinstance(error.__cause__, InsufficientPrivilege):
            raise
        raise CommandError(refused(alias, error.__cause__)) from error


def refused(alias: str, error: InsufficientPrivilege) -> str:
    return (
        f"The login of the database {alias!r} may not do this ({error.diag.message_primary}). sql/roles.sql says which "
        "role may, and manage.py qdoctor what this login lacks."
    )


def reach(alias: str, *, returncode: int = 1) -> None:
    """Connects.  A role that may not be assumed (``assume_role``) is an error of the connection, too."""
    try:
        connections[alias].ensure_connection()
    except DatabaseError as error:
        connections[alias].close()
        message = f"The database {alias!r} cannot be reached: {error}\nStart the server, or correct DATABASES."
        raise CommandError(message, returncode=returncode) from error


def unanswered(alias: str, error: DatabaseError, *, advice: str = "Try again.") -> str:
    """Says that there is no connection, or why PostgreSQL broke a query off, and what to do then."""
    if getattr(error.__cause__, "sqlstate", None) is None:
        return f"The database {alias!r} cannot be reached: {error}"
    said = error.__cause__.diag.message_primary  # type: ignore[union-attr]
    return f"The database {alias!r} broke off: {said}. {advice}"
