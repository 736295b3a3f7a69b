"""The view ``/metrics`` of a site."""

from __future__ import annotations

import threading
import time
from typing import TYPE_CHECKING, Any

from django.core.exceptions import ImproperlyConfigured
from django.http import HttpResponse
from django.utils.crypto import constant_time_compare
from django.views.decorators.cache import never_cache
from django.views.decorators.http import require_safe

from django_pgqueue.backend.lookup import databases, pgqueue_backends
from django_pgqueue.distribution import install_command

try:
    from django_pgqueue.metrics.exposition import encoded
    from django_pgqueue.metrics.queue import families
except ModuleNotFoundError as error:
    message = f"django_pgqueue.metrics.urls needs prometheus-client: {install_command('prometheus')}."
    raise ImproperlyConfigured(message) from error

if TYPE_CHECKING:
    from django.http import HttpRequest
    from prometheus_client import Metric

KEPT_SECONDS = 5.0
"""Each process queries the database once in this time, however many clients ask."""


class Kept:
    """A cache of the latest metrics."""

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.forget()

    def forget(self) -> None:
        self.until = 0.0
        self.found: list[Metric] = []

    def look(self) -> list[Metric]:
        with self.lock:  # a request that comes meanwhile waits for these metrics, and does not query again
            if time.monotonic() >= self.until:
                self.found = list(families(sorted(databases())))
                self.until = time.monotonic() + KEPT_SECONDS
            return self.found


KEPT = Kept()


@never_cache
@require_safe
def metrics(request: HttpRequest) -> HttpResponse:
    """Serves clients with the token, and users who may see the overview in the admin."""
    if not (has_token(request) or may_see(getattr(request, "user", None))):
        refused = HttpResponse(
            "The page Monitoring of the documentation explains how to allow access.\n", "text/plain", 401
        )
        refused["WWW-Authenticate"] = 'Bearer realm="pgqueue metrics"'
        return refused
    content_type, text = encoded(KEPT.look(), accept=request.headers.get("Accept", ""))
    return HttpResponse(text, content_type)


def has_token(request: HttpRequest) -> bool:
    kind, _, given = request.headers.get("Authorization", "").partition(" ")
    known = {backend.settings.metrics_token for backend in pgqueue_backends().values()}
    # Compares all tokens, so that the time reveals nothing about them.
    found = [constant_time_compare(given.strip(), token) for token in known if token]
    return kind.lower() == "bearer" and any(found)


def may_see(user: Any) -> bool:
    return bool(user and user.is_active and user.is_staff and user.has_perm("django_pgqueue.view_overview"))
