"""Limits of the load that queries for display may put on the database."""

from __future__ import annotations

from contextlib import contextmanager
from contextvars import ContextVar
from types import MappingProxyType
from typing import TYPE_CHECKING

from django.db import connections, transaction

from django_pgqueue import functions
from django_pgqueue.monitoring.overview.readable import readable

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

STATEMENT_TIMEOUT = "5s"
# No query here is faster with a sequential scan of a queue's table: a query that no other index serves still
# stops early on the index of the ids. Pinned, because a queue's tables fill and empty faster than they are analysed.
BOUNDS = {
    "statement_timeout": STATEMENT_TIMEOUT,
    "enable_seqscan": "off",
    "jit": "off",
    # The doctor compares definitions, and a person reads them.
    "quote_all_identifiers": "off",
    "standard_conforming_strings": "on",
}
_in_force: ContextVar[Mapping[tuple[str, str], str]] = ContextVar("pgqueue_settings", default=MappingProxyType({}))


@contextmanager
def bounded(using: str, *, timeout: str | None = None) -> Iterator[None]:
    """A transaction in which no statement takes longer than STATEMENT_TIMEOUT or reads a whole table.

    Whoever looks at a queue does it in one: so this is where a queue that is older than the code is told apart from
    other errors (OutdatedQueue), and where what is no text is read as such.
    """
    bounds = BOUNDS | ({"statement_timeout": timeout} if timeout else {})
    within = connections[using].in_atomic_block
    with functions.explained(using), transaction.atomic(using=using):
        before = _set(using, bounds)
        with readable(using):
            yield
        if within:
            _set(using, before)  # an outer transaction goes on with its own settings


@contextmanager
def set_for(using: str, settings: Mapping[str, str]) -> Iterator[None]:
    """Sets settings for some queries of a transaction.  After an error they end with the transaction anyway.

    Within such a block, another one sets what differs: so a block around many queries spares each two statements.
    """
    known = _in_force.get()
    others = {name: value for name, value in settings.items() if known.get((using, name)) != value}
    if not others:
        yield
        return
    before = _set(using, others)
    outer = _in_force.set({**known, **{(using, name): value for name, value in others.items()}})
    try:
        yield
    finally:
        _in_force.reset(outer)
    _set(using, before)


# The condition is asked before a row is changed: what differed is told as it was.
SET = """
with differing as materialized (
    select s.name, s.value, current_setting(s.name) as before
    from unnest(%s::text[], %s::text[]) as s (name, value)
)
select d.name, d.before, set_config(d.name, d.value, true) from differing d where d.before <> d.value
"""


def _set(using: str, settings: Mapping[str, str]) -> dict[str, str]:
    """Sets settings for the transaction, and returns the former values of those that were different."""
    if not settings:
        return {}
    with connections[using].cursor() as cursor:
        cursor.execute(SET, (list(settings), list(settings.values())))
        return {name: before for name, before, _ in cursor.fetchall()}
