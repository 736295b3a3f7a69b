"""The databases of a command: the named one, or all that hold a queue."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING

import psycopg
from django.core.management.base import CommandError
from django.db import ProgrammingError

from django_pgqueue.backend.lookup import databases

if TYPE_CHECKING:
    from collections.abc import Iterator


def asked(alias: str | None, *, returncode: int = 1) -> list[str]:
    """Returns ``[alias]``, or all databases for None."""
    known = sorted(databases())
    if alias is not None and alias not in known:
        message = f"TASKS names no queue in the database {alias!r} (it names: {', '.join(known) or 'none'})."
        raise CommandError(message, returncode=returncode)
    return known if alias is None else [alias]


@contextmanager
def with_its_queue(alias: str) -> Iterator[None]:
    """If tables or functions are missing, raises an error with the remedy."""
    try:
        yield
    except ProgrammingError as error:
        if not isinstance(error.__cause__, psycopg.errors.UndefinedTable | psycopg.errors.UndefinedFunction):
            raise
        missing = error.__cause__.diag.message_primary
        message = f"The queue is missing in the database {alias!r}: run manage.py migrate. ({missing})"
        raise CommandError(message) from error
