"""Why PostgreSQL did not answer a query, in words."""

from __future__ import annotations

import psycopg
from django.utils.translation import gettext
from psycopg.errors import QueryCanceled

from django_pgqueue.monitoring.overview.limits import STATEMENT_TIMEOUT


def why(error: Exception) -> str:
    """Says what PostgreSQL stopped or refused; empty: another error."""
    if isinstance(error.__cause__, QueryCanceled):
        text = gettext("The query took longer than {seconds} seconds and was cancelled.")
        return text.format(seconds=STATEMENT_TIMEOUT.rstrip("s"))
    if isinstance(error.__cause__, psycopg.DataError):
        return gettext("PostgreSQL cannot run this search: {reason}.").format(reason=reason(error))
    return ""


def reason(error: Exception) -> str:
    """Returns PostgreSQL's error message without its details, which may quote a whole row."""
    diagnosis = getattr(error.__cause__, "diag", None)
    return getattr(diagnosis, "message_primary", None) or str(error).partition("\n")[0]
