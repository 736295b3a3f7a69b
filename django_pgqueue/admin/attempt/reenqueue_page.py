"""The page that asks whether to enqueue all messages of a history list again, and gives the work to a job."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from django.contrib import messages
from django.contrib.admin.options import IncorrectLookupParameters
from django.core.exceptions import PermissionDenied
from django.http import HttpResponseNotAllowed, HttpResponseRedirect
from django.template.response import TemplateResponse
from django.utils.html import format_html
from django.utils.translation import gettext, ngettext

from django_pgqueue.admin.edit import criteria as criteria_words
from django_pgqueue.admin.parts import audit_log, database, display
from django_pgqueue.admin.parts.database import url
from django_pgqueue.admin.parts.paginator import CappedPaginator
from django_pgqueue.admin.parts.read_only import is_id
from django_pgqueue.backend import lookup
from django_pgqueue.models.tables import Message

if TYPE_CHECKING:
    from django.db.models import QuerySet
    from django.http import HttpRequest, HttpResponse
    from django.utils.safestring import SafeString

    from django_pgqueue.admin.parts.read_only import ReadOnlyAdmin

MOST = CappedPaginator.CAP
JOB = "django_pgqueue.admin.attempt.reenqueue_task.enqueue_again"
"""The task.  Its module is imported only when needed, because declaring a task needs a backend."""


def view(admin: ReadOnlyAdmin, request: HttpRequest) -> HttpResponse:
    if request.method not in {"GET", "HEAD", "POST"}:
        return HttpResponseNotAllowed(["GET", "HEAD", "POST"])
    if not (admin.has_view_permission(request) and admin.has_run_permission(request)):
        raise PermissionDenied
    return admin.answered(request, lambda: _answer(admin, request))


def _answer(admin: ReadOnlyAdmin, request: HttpRequest) -> HttpResponse:
    back = f"{admin.list_url().partition('?')[0]}?{request.GET.urlencode()}"
    if not any(backend.settings.database == database.alias() for backend in lookup.pgqueue_backends().values()):
        text = gettext("No backend in TASKS keeps its jobs in this database, so no worker can do it.")
        admin.message_user(request, text, messages.ERROR)
        return HttpResponseRedirect(back)
    from django_pgqueue.admin.attempt import reenqueue_task  # noqa: PLC0415 -- declares a task, which needs a backend

    try:
        listed: Any = admin.get_changelist_instance(request)
    except IncorrectLookupParameters:
        return HttpResponseRedirect(admin.list_url())
    posted = request.POST.get("newest", "")
    newest = int(posted) if is_id(posted) else _newest(admin, request)
    if request.method == "POST" and "confirmed" in request.POST:
        result = reenqueue_task.ask(request.GET.urlencode(), newest=newest, user=request.user)
        audit_log.written(request, Message, [result.id], f"{gettext('Enqueue again')}: ?{request.GET.urlencode()}")
        said_of_it = gettext("Job {id} enqueues them again as soon as a worker runs it.").format(id=result.id)
        admin.message_user(request, said_of_it, messages.SUCCESS)
        # A user who may not see messages stays on the history.
        may_look = request.user.has_perm("django_pgqueue.view_message") or request.user.has_perm(
            "django_pgqueue.change_message"
        )
        return HttpResponseRedirect(url("message_change", result.id) if may_look else back)
    count = _count(reenqueue_task.ended(listed.queryset, newest=newest))
    criteria = [
        f"{worded(name)} {value}" for name, value in request.GET.items() if value and name != database.PARAMETER
    ]
    context = {
        **admin.admin_site.each_context(request),
        "title": gettext("Enqueue all again?"),
        "opts": admin.opts,
        "media": admin.media,
        "count": count,
        "summary": summary(count, criteria),
        "criteria": criteria,
        "notes": listed.window_notes,
        "batch": display.number(reenqueue_task.BATCH),
        "newest": newest,
        "back": back,
    }
    return TemplateResponse(request, "admin/django_pgqueue/attempt/again.html", context)


def summary(count: int, criteria: list[str]) -> SafeString:
    """Says how many of the list it is about, and what chose them."""
    label = f"{display.number(MOST)}+" if count > MOST else display.number(count)
    words = ngettext(
        "{count} ended message of this list can be enqueued again{by}.",
        "{count} ended messages of this list can be enqueued again{by}.",
        count,
    )
    by = gettext(", by {criteria}").format(criteria=", ".join(criteria)) if criteria else ""
    return format_html(words, count=format_html("<strong>{}</strong>", label), by=by)


def worded(parameter: str) -> str:
    """
    >>> worded("status__exact"), worded("finished_at__range__gte_0"), worded("queue")
    ('status', 'finished at from', 'queue')
    """
    name, _, how = parameter.partition("__")
    words = gettext("search") if name == "q" else criteria_words.column(name)
    return criteria_words.limited(words, {"range__gte": "from", "range__lte": "until"}.get(how.rstrip("_01"), ""))


def _newest(admin: ReadOnlyAdmin, request: HttpRequest) -> int:
    newest: int | None = admin.get_queryset(request).order_by("-pk").values_list("pk", flat=True).first()
    return newest or 0


def _count(found: QuerySet[Any]) -> int:
    """Counts up to MOST, and one more."""
    return len(found.values_list("pk", flat=True)[: MOST + 1])
