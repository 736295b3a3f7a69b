"""Runs a query that may turn out to take too long, and gives it up then."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from django.db import OperationalError, transaction
from psycopg.errors import QueryCanceled

from django_pgqueue.monitoring.overview import queries

if TYPE_CHECKING:
    from collections.abc import Mapping

BUDGET_MS = 300
"""Three such queries and the rest of a page stay below a second or so."""


def rows(
    sql: str, parameters: Mapping[str, Any], settings: Mapping[str, str], *, using: str
) -> list[tuple[Any, ...]] | None:
    """Returns the rows; None: the query would have taken longer than BUDGET_MS.

    The savepoint keeps the transaction usable, and its end puts the settings back.
    """
    within = {**settings, "statement_timeout": f"{BUDGET_MS}ms"}
    try:
        with transaction.atomic(using=using):
            return queries.rows(sql, parameters, using=using, settings=within)
    except OperationalError as error:
        if isinstance(error.__cause__, QueryCanceled):
            return None
        raise
