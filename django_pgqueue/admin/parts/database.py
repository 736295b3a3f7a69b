"""Where the queue is, and what time it is there."""

from __future__ import annotations

from contextlib import contextmanager
from contextvars import ContextVar
from typing import TYPE_CHECKING, Any
from urllib.parse import urlencode

from django.contrib.admin.utils import quote
from django.db import connections
from django.urls import reverse

from django_pgqueue import functions
from django_pgqueue.backend.lookup import databases, default_database
from django_pgqueue.monitoring.overview.limits import bounded

if TYPE_CHECKING:
    import datetime as dt
    from collections.abc import Callable, Iterator

    from django.http import HttpRequest

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
    """The address of a page of the admin, about the same database.  ``args``: the key of a row, as it is."""
    parameters = query | ({PARAMETER: alias()} if alias() != default_database() else {})
    address = reverse(f"admin:pgqueue_{name}", args=[quote(str(arg)) for arg in args])
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
