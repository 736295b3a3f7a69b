"""The database of a page, and its clock."""

from __future__ import annotations

import re
from contextlib import contextmanager
from contextvars import ContextVar
from typing import TYPE_CHECKING, Any
from urllib.parse import urlencode

from django.contrib.admin.utils import quote
from django.contrib.admin.views.main import ERROR_FLAG
from django.db import connections
from django.http import HttpResponseRedirect
from django.urls import NoReverseMatch, reverse
from django.utils.html import format_html
from django.utils.safestring import SafeString, mark_safe

from django_pgqueue import functions
from django_pgqueue.backend.lookup import databases, default_database
from django_pgqueue.conf import APP_LABEL
from django_pgqueue.monitoring.overview.limits import bounded

if TYPE_CHECKING:
    import datetime as dt
    from collections.abc import Callable, Iterator

    from django.http import HttpRequest

PARAMETER = "database"
"""Names another database than that of the default backend in a URL.  The session does not store it: an id means another
row in each database, and a user may have a window open for each."""

LINK = re.compile(rf'(<a href="[^"?]*/{APP_LABEL}/[^"?]*)"')
"""A link to a page of the queue that names no database."""

_chosen: ContextVar[str | None] = ContextVar("pgqueue_admin_database", default=None)
_site: ContextVar[str | None] = ContextVar("pgqueue_admin_site", default=None)
"""The admin site of a request.  A project may have several: links of a page stay in its own."""
_user: ContextVar[Any] = ContextVar("pgqueue_admin_user", default=None)


def alias() -> str:
    """Returns the page's database: the one that the URL names, or else that of the default backend."""
    return _chosen.get() or default_database()


def asked(request: HttpRequest) -> str:
    """Returns the URL's database if it has a queue, or else the default."""
    name = request.GET.get(PARAMETER, "")
    return name if name in databases() else default_database()


def site_of(request: HttpRequest) -> str | None:
    """Returns the name of the admin site that answers, for ``reverse(..., current_app=)``."""
    return request.resolver_match.namespace if request.resolver_match else None


@contextmanager
def chosen(request: HttpRequest) -> Iterator[None]:
    """Lets links lead to the database that the URL of a request names."""
    before = _chosen.set(asked(request))
    outside = _site.set(site_of(request))
    somebody = _user.set(request.user)
    try:
        yield
    finally:
        _chosen.reset(before)
        _site.reset(outside)
        _user.reset(somebody)


@contextmanager
def about(request: HttpRequest, *, timeout: str | None = None) -> Iterator[None]:
    """Handles a request with the database that its URL names, for a limited time."""
    with chosen(request), bounded(alias(), timeout=timeout):
        yield


def url(name: str, *args: object, **query: object) -> str:
    """Returns the URL of an admin page with the same database; "" where the project's admin site has no such page.

    ``args``: the key of a row, not quoted.
    """
    parameters = query | ({PARAMETER: alias()} if alias() != default_database() else {})
    keys = [quote(str(arg)) for arg in args]
    try:
        address = reverse(f"admin:django_pgqueue_{name}", args=keys, current_app=_site.get())
    except NoReverseMatch:
        return ""
    return f"{address}?{urlencode(parameters)}" if parameters else address


def link(name: str, words: object, *args: object, title: str = "", **query: object) -> SafeString:
    """Returns a link to an admin page: only its words for a user who may not see that page."""
    user, model = _user.get(), name.partition("_")[0]
    if user is not None and not may_see(user, model):
        return format_html("{}", words)
    named = format_html(' title="{}"', title) if title else ""
    return format_html('<a href="{}"{}>{}</a>', url(name, *args, **query), named, words)


def may_see(user: Any, model: str) -> bool:
    """Whether the admin site has the pages of a model, and the user may see them."""
    return bool(url(f"{model}_changelist")) and any(
        user.has_perm(f"django_pgqueue.{may}_{model}") for may in ("view", "change")
    )


def same(request: HttpRequest) -> str:
    """Query string with which a link to another page keeps the database."""
    return f"?{urlencode({PARAMETER: asked(request)})}" if asked(request) != default_database() else ""


def without_parameters(request: HttpRequest) -> HttpResponseRedirect:
    """Leads to the list without what it refused.  Django does so, too, but to the default database."""
    return HttpResponseRedirect(f"{request.path}?{ERROR_FLAG}=1{same(request).replace('?', '&')}")


def leading_here(words: Any) -> Any:
    """Returns words whose links, which Django has made, lead to rows of this database."""
    if alias() == default_database() or not isinstance(words, SafeString):
        return words
    return mark_safe(LINK.sub(rf'\1?{urlencode({PARAMETER: alias()})}"', words))  # noqa: S308 -- it was safe


def choices(path: str) -> list[dict[str, Any]]:
    """Returns links to the same page for each database; none if there is only one."""
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
    """Returns the database's time, queried once per request: all of a page shows the same moment."""
    moment: dt.datetime = once(request, "now", lambda: functions.now(connections[alias()]))
    return moment


def once(request: HttpRequest, name: str, make: Callable[[], Any]) -> Any:
    """Returns ``make()``, cached for the rest of the request."""
    kept = request.__dict__.setdefault("_pgqueue_admin", {})
    if name not in kept:
        kept[name] = make()
    return kept[name]
