"""Why PostgreSQL did not answer a query, in words."""

from __future__ import annotations

import psycopg
from django.utils.translation import gettext
from psycopg.errors import QueryCanceled

from django_pgqueue.monitoring.overview.limits import STATEMENT_TIMEOUT

RESOURCES = ("53", "54")
"""How the SQLSTATE begins where memory, room for locks, disk, temporary files or the stack run out."""
ENDED = ("25P03", "25P04")
"""The SQLSTATEs of a session that ``idle_in_transaction_session_timeout`` or ``transaction_timeout`` ended.  To psycopg
and Django they are internal errors."""
FORBIDDEN = "42501"
"""The SQLSTATE of a statement for which the login lacks a right, or which row-level security refuses."""


def why(error: Exception) -> str:
    """Says what PostgreSQL stopped or refused; empty: another error."""
    if isinstance(error.__cause__, QueryCanceled):
        text = gettext("The query took longer than {seconds} seconds and was cancelled.")
        return text.format(seconds=STATEMENT_TIMEOUT.rstrip("s"))
    if isinstance(error.__cause__, psycopg.DataError):
        return gettext("PostgreSQL cannot run this search: {reason}.").format(reason=reason(error))
    sqlstate = str(getattr(error.__cause__, "sqlstate", None))
    if sqlstate in ENDED:
        return gettext("The page took longer than PostgreSQL allows: {reason}.").format(reason=reason(error))
    if sqlstate == FORBIDDEN:
        text = gettext("The login of this site to PostgreSQL has no right to do this: {reason}.")
        return text.format(reason=reason(error))
    if sqlstate.startswith(RESOURCES):
        text = gettext("PostgreSQL lacks the resources for this query: {reason}.")
        return text.format(reason=reason(error, hint=True))
    return ""


def reason(error: Exception, *, hint: bool = False) -> str:
    """Returns PostgreSQL's error message without its details, which may quote a whole row."""
    diagnosis = getattr(error.__cause__, "diag", None)
    words = getattr(diagnosis, "message_primary", None) or str(error).partition("\n")[0]
    advice = getattr(diagnosis, "message_hint", None) if hint else None
    return f"{words}: {advice.rstrip('.')}" if advice else words
