"""Where the queue is, what time it is there, and how long the admin may keep it busy."""

from __future__ import annotations

from contextlib import contextmanager
from contextvars import ContextVar
from typing import TYPE_CHECKING, Any
from urllib.parse import urlencode

from django.db import connections, transaction
from django.urls import reverse

from django_pgqueue import functions
from django_pgqueue.routers import databases, default_database

if TYPE_CHECKING:
    import datetime as dt
    from collections.abc import Callable, Iterable, Iterator, Mapping

    from django.http import HttpRequest

STATEMENT_TIMEOUT = "5s"
# No query of the admin is better off with a sequential scan of a queue's table: what the indexes do not serve still
# ends early at the index of the ids. Pinned, because tables of a queue fill and empty faster than they are analysed.
BOUNDS = {"statement_timeout": STATEMENT_TIMEOUT, "enable_seqscan": "off", "jit": "off"}


PARAMETER = "database"
"""What a URL says when it is about another database than that of the default backend.  Not a matter of the session:
ids mean something else in each database, and somebody may have a window open for each."""

_chosen: ContextVar[str | None] = ContextVar("pgqueue_admin_database", default=None)


def alias() -> str:
    """The database that the page is about: that of the default backend, or else the one that the URL names."""
    return _chosen.get() or default_database()


def asked(request: HttpRequest) -> str:
    """What the URL says, if there is a queue."""
    name = request.GET.get(PARAMETER, "")
    return name if name in databases() else default_database()


@contextmanager
def about(request: HttpRequest, *, timeout: str | None = None) -> Iterator[None]:
    """Answers a request about the database that its URL names, and keeps it busy for a limited time."""
    before = _chosen.set(asked(request))
    try:
        with bounded(alias(), timeout=timeout):
            yield
    finally:
        _chosen.reset(before)


def url(name: str, *args: object, **query: object) -> str:
    """The address of a page of the admin, about the same database."""
    parameters = query | ({PARAMETER: alias()} if alias() != default_database() else {})
    address = reverse(f"admin:pgqueue_{name}", args=args)
    return f"{address}?{urlencode(parameters)}" if parameters else address


def same(request: HttpRequest) -> str:
    """What a link to another page says, to be about the same database."""
    return f"?{urlencode({PARAMETER: asked(request)})}" if asked(request) != default_database() else ""


def choices(path: str) -> list[dict[str, Any]]:
    """Links to the same page about each of the databases; none where there is only one."""
    found = databases()
    if len(found) < 2:
        return []
    default = default_database()
    return [
        {
            "name": name,
            "backends": ", ".join(backends),
            "selected": name == alias(),
            "url": path if name == default else f"{path}?{urlencode({PARAMETER: name})}",
        }
        for name, backends in found.items()
    ]


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
def bounded(using: str, *, timeout: str | None = None) -> Iterator[None]:
    """A transaction in which no statement takes longer than STATEMENT_TIMEOUT or reads a whole table."""
    bounds = BOUNDS | ({"statement_timeout": timeout} if timeout else {})
    within = connections[using].in_atomic_block
    with transaction.atomic(using=using):
        before = _current(using, bounds) if within else {}
        _set(using, bounds)
        yield
        _set(using, before)  # a transaction around this one goes on with its own settings


@contextmanager
def set_for(using: str, settings: Mapping[str, str]) -> Iterator[None]:
    """Settings for some queries of a transaction.  After an error they end with the transaction anyway."""
    before = _current(using, settings)
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
