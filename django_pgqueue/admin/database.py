"""Where the queue is, what time it is there, and how long the admin may keep it busy."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from django.db import connections, transaction

from django_pgqueue import checks, functions
from django_pgqueue.compat import DEFAULT_TASK_BACKEND_ALIAS

if TYPE_CHECKING:
    import datetime as dt
    from collections.abc import Callable, Iterator

    from django.http import HttpRequest

STATEMENT_TIMEOUT = "5s"
# No query of the admin is better off with a sequential scan of a queue's table: what the indexes do not serve still
# ends early at the index of the ids. Pinned, because tables of a queue fill and empty faster than they are analysed.
BOUNDS = {"statement_timeout": STATEMENT_TIMEOUT, "enable_seqscan": "off", "jit": "off"}


def alias() -> str:
    """The database of the queue: that of the default backend, or else of the first one of ours."""
    ours = checks.ours()
    backend = ours.get(DEFAULT_TASK_BACKEND_ALIAS) or next(iter(ours.values()), None)
    return backend.settings.database if backend else "default"


def now(request: HttpRequest) -> dt.datetime:
    """The time by the database's clock, asked once a request: all of a page speaks of the same moment."""
    moment: dt.datetime = once(request, "now", lambda: functions.now(connections[alias()]))
    return moment


def once(request: HttpRequest, name: str, make: Callable[[], Any]) -> Any:
    """``make()``, kept for the rest of the request."""
    kept = request.__dict__.setdefault("_pgqueue_admin", {})
    if name not in kept:
        kept[name] = make()
    return kept[name]


@contextmanager
def bounded(using: str) -> Iterator[None]:
    """A transaction in which no statement takes longer than STATEMENT_TIMEOUT or reads a whole table."""
    within = connections[using].in_atomic_block
    with transaction.atomic(using=using):
        before = _current(using) if within else {}
        _set(using, BOUNDS)
        yield
        _set(using, before)  # a transaction around this one goes on with its own settings


def _current(using: str) -> dict[str, str]:
    with connections[using].cursor() as cursor:
        cursor.execute("select name, current_setting(name) from unnest(%s::text[]) as s (name)", (list(BOUNDS),))
        return dict(cursor.fetchall())


def _set(using: str, settings: dict[str, str]) -> None:
    if settings:
        with connections[using].cursor() as cursor:
            cursor.execute(
                "select set_config(name, value, true) from unnest(%s::text[], %s::text[]) as s (name, value)",
                (list(settings), list(settings.values())),
            )
