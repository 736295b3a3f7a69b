"""Enqueues all ended messages of a history list again: in a job, a batch at a time.

Only the page and the worker that runs the job import this module, because declaring a task needs a backend.
"""

from __future__ import annotations

import datetime as dt
from dataclasses import asdict, dataclass, replace
from typing import TYPE_CHECKING, Any, cast

from django.contrib import admin
from django.contrib.auth import get_user_model
from django.contrib.auth.models import AnonymousUser
from django.contrib.messages.storage.cookie import CookieStorage
from django.core import signing
from django.core.exceptions import PermissionDenied
from django.db import connections, transaction
from django.http import HttpRequest, QueryDict

from django_pgqueue import functions
from django_pgqueue.admin.attempt import reenqueue_page
from django_pgqueue.admin.parts import database
from django_pgqueue.backend import lookup
from django_pgqueue.compat import DEFAULT_TASK_BACKEND_ALIAS
from django_pgqueue.models.tables import Attempt, Message
from django_pgqueue.monitoring.overview.limits import set_for
from django_pgqueue.tasks.task import task
from django_pgqueue.values.times import to_epoch_ms

if TYPE_CHECKING:
    from django.db.models import QuerySet

    from django_pgqueue.backend.pgqueue import PgQueueBackend
    from django_pgqueue.compat import AnyTaskResult

BATCH = 2_000
BATCHES = 5
"""Batches per job.  Each batch makes the transaction longer; the next job takes the rest."""
TIMEOUT = "60s"
"""Longer than for pages: no user waits for the job."""
SALT = "django_pgqueue.admin.attempt.reenqueue_task"
MAX_AGE = dt.timedelta(days=7)
NEXT_STEP = "Use the page “Enqueue all again” of the admin's history."

ENQUEUED_AGAIN = """
select a.headers ->> 'enqueued_again_from'
from pgqueue_attempt a
where a.finished_at >= (select min(o.finished_at) from pgqueue_attempt o where o.id = any (%(attempts)s))
  and a.headers ? 'enqueued_again_from' and a.headers ->> 'enqueued_again_from' = any (%(messages)s)
union
select m.headers ->> 'enqueued_again_from'
from pgqueue_message m
where m.headers ? 'enqueued_again_from' and m.headers ->> 'enqueued_again_from' = any (%(messages)s)
"""


def backend_of(name: str) -> PgQueueBackend | None:
    """Returns a backend whose workers use the database: the default one, or else the first."""
    found = {
        alias: backend for alias, backend in lookup.pgqueue_backends().items() if backend.settings.database == name
    }
    return found.get(DEFAULT_TASK_BACKEND_ALIAS) or next(iter(found.values()), None)


def _queue(backend: PgQueueBackend) -> str:
    return "default" if not backend.queues or "default" in backend.queues else min(backend.queues)


def _first() -> PgQueueBackend:
    backends = lookup.pgqueue_backends()
    return backends.get(DEFAULT_TASK_BACKEND_ALIAS) or next(iter(backends.values()))


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    """The request from the page, and how far the jobs before this one have come."""

    query: str
    """Query string of the list's URL."""
    newest: int
    """The last attempt that the request includes."""
    user: str
    last: int = 0
    made: int = 0


def ended(attempts: QuerySet[Any], *, newest: int) -> QuerySet[Any]:
    """Returns attempts that can be enqueued again: none after ``newest``, and none of these jobs."""
    own = attempts.exclude(task=reenqueue_page.JOB)
    return own.filter(pk__lte=newest, final=True, content__isnull=False).order_by("pk")


def ask(query: str, *, newest: int, user: Any) -> AnyTaskResult:
    """Enqueues the job.  ``query``: the query string of the list's URL."""
    return _enqueue(Asked(query=query, newest=newest, user=str(user.pk)))


def _enqueue(asked: Asked) -> AnyTaskResult:
    """Enqueues a job whose arguments are signed; the signature is valid for the job's own message only.

    So a copy of the job does nothing, whoever enqueues it and however, and neither does a job without a signature.
    """
    backend = backend_of(database.alias())
    assert backend is not None  # noqa: S101 -- the page offers it only then
    job = enqueue_again.using(backend=backend.alias, queue_name=_queue(backend))
    with transaction.atomic(using=database.alias()):
        result = job.enqueue(token="")
        until = to_epoch_ms(functions.now(connections[database.alias()]) + MAX_AGE)
        signed = {**asdict(asked), "message": int(result.id), "database": database.alias(), "until": until}
        token = signing.dumps(signed, salt=SALT, compress=True)
        mine = Message.objects.using(database.alias()).filter(pk=int(result.id))
        mine.update(content={"args": [], "kwargs": {"token": token}})
    return result


@task(
    backend=_first().alias,
    queue_name=_queue(_first()),
    atomic=True,
    takes_context=True,
    no_retry_on=(PermissionDenied,),
)
def enqueue_again(context: Any, *, token: str) -> dict[str, Any]:
    """Runs some batches, and enqueues the job for the rest, in one transaction: no message is enqueued twice."""
    asked = _verified(token, context)
    request = _request(asked)
    with database.about(request, timeout=TIMEOUT):
        _check(request)
        pairs = _next(_list(request), asked)
        left = left_out([pk for pk, _ in pairs], [message_id for _, message_id in pairs])
        ids = [pk for pk, message_id in pairs if message_id not in left]
        for batch in (ids[start : start + BATCH] for start in range(0, len(ids), BATCH)):
            functions.attempt_enqueue(connections[database.alias()], batch, version=lookup.version_of(database.alias()))
        made = asked.made + len(ids)
        if len(pairs) < BATCH * BATCHES:
            return {"enqueued_again": made}
        rest = _enqueue(replace(asked, last=pairs[-1][0], made=made))
        return {"enqueued_again": made, "goes_on_in": rest.id}


def _verified(token: object, context: Any) -> Asked:
    try:
        signed = signing.loads(str(token), salt=SALT)
    except signing.BadSignature as error:
        message = (
            "No user with the permission has requested this: the job has no token that this site has signed. Check "
            f"that the worker has the same SECRET_KEY as the site. {NEXT_STEP}"
        )
        raise PermissionDenied(message) from error
    name = lookup.pgqueue_backends()[context.task_result.backend].settings.database
    if (signed.pop("message"), signed.pop("database")) != (context.message.id, name):
        message = f"This job is a copy, and each request is valid for one job only. {NEXT_STEP}"
        raise PermissionDenied(message)
    if signed.pop("until") < to_epoch_ms(functions.now(connections[name])):
        message = f"The request is older than {MAX_AGE.days} days and has expired. {NEXT_STEP}"
        raise PermissionDenied(message)
    return Asked(**signed)


def _next(listed: QuerySet[Any], asked: Asked) -> list[tuple[int, int]]:
    left = ended(listed, newest=asked.newest).filter(pk__gt=asked.last)
    return list(left.values_list("pk", "message_id")[: BATCH * BATCHES])


def left_out(attempts: list[int], messages: list[int]) -> set[int]:
    """Returns messages that were already enqueued again: their new messages have their own outcomes.

    Otherwise each run would double the messages of the run before.
    """
    asked: dict[str, Any] = {"attempts": attempts, "messages": [str(pk) for pk in messages]}
    # No index has the headers: the query reads all days since the first of these attempts, and no others.
    with set_for(database.alias(), {"enable_seqscan": "on"}), connections[database.alias()].cursor() as cursor:
        cursor.execute(ENQUEUED_AGAIN, asked)
        return {int(pk) for (pk,) in cursor.fetchall()}


def _request(asked: Asked) -> HttpRequest:
    """Returns a request like that of the user's browser, as far as the list reads it."""
    request = HttpRequest()
    request.method = "GET"
    request.GET = cast("Any", QueryDict(asked.query))
    user = get_user_model()._default_manager.filter(pk=asked.user, is_active=True).first()  # noqa: SLF001 -- as django.contrib.auth
    request.user = user or AnonymousUser()
    request.__dict__["pgqueue_until"] = asked.newest
    request.__dict__["_messages"] = CookieStorage(request)
    return request


def _check(request: HttpRequest) -> None:
    """Checks permission again: the user may have lost it."""
    model_admin: Any = admin.site.get_model_admin(Attempt)
    may_run = admin.site.has_permission(request) and model_admin.has_run_permission(request)
    if not (may_run and model_admin.has_view_permission(request)):
        message = f"{request.user} has no permission (any more) to enqueue messages again."
        raise PermissionDenied(message)


def _list(request: HttpRequest) -> QuerySet[Any]:
    listed: QuerySet[Any] = admin.site.get_model_admin(Attempt).get_changelist_instance(request).queryset
    return listed
