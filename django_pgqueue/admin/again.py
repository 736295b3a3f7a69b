"""Enqueues all ended messages that a list of the history finds again: in a job, a batch at a time.

Imported when somebody asks for it, and by the worker that runs the job: a task needs a backend to be declared.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, cast

from django.contrib import admin
from django.contrib.auth import get_user_model
from django.contrib.messages.storage.cookie import CookieStorage
from django.core.exceptions import PermissionDenied
from django.db import connections
from django.http import HttpRequest, QueryDict

from django_pgqueue import checks, functions
from django_pgqueue.admin import database
from django_pgqueue.compat import DEFAULT_TASK_BACKEND_ALIAS
from django_pgqueue.models import Attempt
from django_pgqueue.tasks import task

if TYPE_CHECKING:
    from django.db.models import QuerySet

    from django_pgqueue.backend import PgQueueBackend
    from django_pgqueue.compat import AnyTaskResult

BATCH = 2_000
BATCHES = 5
"""Of one job.  Each batch more makes its transaction longer; what is left is for the next job."""
TIMEOUT = "60s"
"""Nobody waits for it in front of a page."""


def backend_of(name: str) -> PgQueueBackend | None:
    """The backend whose workers look into a database: the default one, or else the first."""
    found = {alias: backend for alias, backend in checks.ours().items() if backend.settings.database == name}
    return found.get(DEFAULT_TASK_BACKEND_ALIAS) or next(iter(found.values()), None)


def _queue(backend: PgQueueBackend) -> str:
    return "default" if not backend.queues or "default" in backend.queues else min(backend.queues)


def _first() -> PgQueueBackend:
    backends = checks.ours()
    return backends.get(DEFAULT_TASK_BACKEND_ALIAS) or next(iter(backends.values()))


def ended(attempts: QuerySet[Any], *, newest: int) -> QuerySet[Any]:
    """Those of a list that can be enqueued again, without what came after it was looked at."""
    return attempts.filter(pk__lte=newest, final=True, content__isnull=False).order_by("pk")


def ask(query: str, *, newest: int, user: Any) -> AnyTaskResult:
    """Enqueues the job.  ``query``: that of the list's URL."""
    backend = backend_of(database.alias())
    assert backend is not None  # noqa: S101 -- the page offers it only then
    asked = enqueue_again.using(backend=backend.alias, queue_name=_queue(backend))
    return asked.enqueue(query=query, newest=newest, user_id=user.pk)


@task(backend=_first().alias, queue_name=_queue(_first()), atomic=True)
def enqueue_again(*, query: str, newest: int, user_id: Any, last: int = 0, made: int = 0) -> dict[str, Any]:
    """One transaction: some batches and the job that goes on with what is left.  So nothing is enqueued twice."""
    request = _request(query, newest, user_id)
    with database.about(request, timeout=TIMEOUT):
        _check(request)
        listed = _list(request)
        for _ in range(BATCHES):
            ids = list(ended(listed, newest=newest).filter(pk__gt=last).values_list("pk", flat=True)[:BATCH])
            made += len(functions.attempt_enqueue(connections[database.alias()], ids)) if ids else 0
            if len(ids) < BATCH:
                return {"enqueued_again": made}
            last = ids[-1]
        backend = backend_of(database.alias())
        assert backend is not None  # noqa: S101 -- its worker runs this
        onwards = enqueue_again.using(backend=backend.alias, queue_name=_queue(backend))
        rest = onwards.enqueue(query=query, newest=newest, user_id=user_id, last=last, made=made)
        return {"enqueued_again": made, "goes_on_in": rest.id}


def _request(query: str, newest: int, user_id: Any) -> HttpRequest:
    """What the browser of that person would send, as far as the list looks at it."""
    request = HttpRequest()
    request.method = "GET"
    request.GET = cast("Any", QueryDict(query))
    request.user = get_user_model()._default_manager.get(pk=user_id, is_active=True)  # noqa: SLF001 -- as django.contrib.auth
    request.__dict__["pgqueue_until"] = newest
    request.__dict__["_messages"] = CookieStorage(request)
    return request


def _check(request: HttpRequest) -> None:
    """The permission may have been taken away meanwhile."""
    model_admin: Any = admin.site.get_model_admin(Attempt)
    if not (model_admin.has_run_permission(request) and model_admin.has_view_permission(request)):
        message = f"{request.user} may not enqueue messages again (any more)."
        raise PermissionDenied(message)


def _list(request: HttpRequest) -> QuerySet[Any]:
    listed: QuerySet[Any] = admin.site.get_model_admin(Attempt).get_changelist_instance(request).queryset
    return listed
