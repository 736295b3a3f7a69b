"""Limits of the load that queries for display may put on the database."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING

from django.db import connections, transaction

from django_pgqueue import functions

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

STATEMENT_TIMEOUT = "5s"
# No query here is faster with a sequential scan of a queue's table: a query that no other index serves still
# stops early on the index of the ids. Pinned, because a queue's tables fill and empty faster than they are analysed.
BOUNDS = {"statement_timeout": STATEMENT_TIMEOUT, "enable_seqscan": "off", "jit": "off"}


@contextmanager
def bounded(using: str, *, timeout: str | None = None) -> Iterator[None]:
    """A transaction in which no statement takes longer than STATEMENT_TIMEOUT or reads a whole table.

    Whoever looks at a queue does it in one: so this is where a queue that is older than the code is told apart from
    other errors (OutdatedQueue).
    """
    bounds = BOUNDS | ({"statement_timeout": timeout} if timeout else {})
    within = connections[using].in_atomic_block
    with functions.explained(using), transaction.atomic(using=using):
        before = _current(using, bounds) if within else {}
        _set(using, bounds)
        yield
        _set(using, before)  # an outer transaction goes on with its own settings


@contextmanager
def set_for(using: str, settings: Mapping[str, str]) -> Iterator[None]:
    """Sets settings for some queries of a transaction.  After an error they end with the transaction anyway."""
    before = _current(using, settings) if settings else {}
    _set(using, settings)
    yield
    _set(using, before)


def _current(using: str, names: Iterable[str]) -> dict[str, str]:
    with connections[using].cursor() as cursor:
        cursor.execute("select name, current_setting(name) from unnest(%s::text[]) as s (name)", (list(names),))
        return dict(cursor.fetchall())


def _set(using: str, settings: Mapping[str, str]) -> None:
    if settings:
        with connections[using].cursor() as cursor:
            cursor.execute(
                "select set_config(name, value, true) from unnest(%s::text[], %s::text[]) as s (name, value)",
                (list(settings), list(settings.values())),
            )
