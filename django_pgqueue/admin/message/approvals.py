"""The page of what waits for the decision of a person, and of all that is suspended."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from django.contrib import messages
from django.core.exceptions import PermissionDenied
from django.http import HttpResponseRedirect
from django.template.response import TemplateResponse
from django.utils.translation import gettext, gettext_lazy

from django_pgqueue.admin.parts import audit_log, display, queries
from django_pgqueue.admin.parts.database import alias, url
from django_pgqueue.admin.parts.read_only import is_id
from django_pgqueue.durable import decide
from django_pgqueue.durable.approvals import RUN
from django_pgqueue.exceptions import InvalidMessage
from django_pgqueue.models.tables import Message
from django_pgqueue.monitoring.overview.capped import Capped

if TYPE_CHECKING:
    from django.http import HttpRequest, HttpResponse

    from django_pgqueue.admin.message.admin import MessageAdmin

SHOWN = 100
MAX_COMMENT = 2_000
DECISION = "pgqueue:…"
OPEN = """
select a.message_id, a.name, a.permission,
       least(greatest(a.asked_at, '0001-01-02 00:00:00+00'), '9999-12-30 00:00:00+00'),
       case when pg_column_size(a.details) < 100000 then jsonb_pretty(a.details) end, m.task
from pgqueue_approval a
cross join lateral (select m.task from pgqueue_message m where m.id = a.message_id limit 1) as m
where a.decided_at is null and (%(sees_all)s or coalesce(a.permission, %(run)s) = any (%(may)s))
order by coalesce(a.permission, %(run)s) = any (%(may)s) desc, a.asked_at, a.message_id
limit %(most)s
"""
"""Those that the user may decide come first: others must not hide them."""
PERMISSIONS = "select distinct coalesce(a.permission, %(run)s) from pgqueue_approval a where a.decided_at is null"
COUNTED = 10_000
SUSPENDED = """
select s.event, s.goes_on, s.waits_for_children, count(*), min(s.id)
from (
    select m.id, m.after_ids is not null as waits_for_children, left(split_part(m.awaited_event, ':', 1), 100) as event,
           position(':' in m.awaited_event) > 0 as goes_on
    from pgqueue_message m
    where m.suspended_attempt is not null and m.suspended_attempt = m.attempt and m.unlock_at is null
    limit %(counted)s
) as s
group by 1, 2, 3
order by 4 desc
limit 50
"""
"""Events are counted by the part of their name before the first colon: in "paid:7" the rest names one job."""
TOLD = {
    "already": gettext_lazy("This was decided before, and your decision was not recorded."),
    "ended": gettext_lazy("The job has ended or was cancelled meanwhile: there is nothing to decide."),
    "unknown": gettext_lazy("The job has not asked for this decision."),
}


def page(model_admin: MessageAdmin, request: HttpRequest) -> HttpResponse:
    if request.method == "POST":
        _decide(model_admin, request)
        return HttpResponseRedirect(request.get_full_path())
    sees_all = model_admin.has_view_permission(request)
    may = [name for (name,) in queries.rows(PERMISSIONS, {"run": RUN}) if request.user.has_perm(name)]
    asked = {"run": RUN, "may": may, "sees_all": sees_all, "most": SHOWN + 1}
    found = [
        {
            "message_id": message_id,
            "message": gettext("Message {id}").format(id=message_id),
            "url": url("message_change", message_id) if sees_all else None,
            "name": name,
            "permission": permission or RUN,
            "since": display.moment(asked_at),
            "task": task,
            "details": details,
            "may": (permission or RUN) in may,
        }
        for message_id, name, permission, asked_at, details, task in queries.rows(OPEN, asked)
    ]
    site = model_admin.admin_site.each_context(request)
    context = {
        **site,
        "title": gettext("Approvals"),
        "opts": model_admin.opts,
        "has_app": any(app["app_label"] == model_admin.opts.app_label for app in site["available_apps"]),
        "approvals": [_seen(one) for one in found[:SHOWN]],
        "more": len(found) > SHOWN,
        "max_comment": MAX_COMMENT,
        "suspended": _suspended() if sees_all else None,
    }
    return TemplateResponse(request, "admin/django_pgqueue/message/approvals.html", context)


def _suspended() -> list[dict[str, Any]]:
    return [
        {
            "what": _awaited(None if event is None else event + (":…" if goes_on else ""), for_children=for_children),
            "count": str(Capped.of(count, COUNTED)),
            "url": url("message_change", first),
            "first": first,
        }
        for event, goes_on, for_children, count, first in queries.rows(SUSPENDED, {"counted": COUNTED + 1})
    ]


def _awaited(event: str | None, *, for_children: bool) -> str:
    if event is None:
        return gettext("their children") if for_children else gettext("a time")
    return gettext("a decision") if event == DECISION else gettext("the event {name}").format(name=event)


def _seen(approval: dict[str, Any]) -> dict[str, Any]:
    """Returns an approval without what only those who decide are shown."""
    return approval if approval["may"] else {**approval, "details": None}


def _decide(model_admin: MessageAdmin, request: HttpRequest) -> None:
    message_id, name = request.POST.get("message_id", ""), request.POST.get("name", "").replace("\0", "")
    decision = request.POST.get("decision", "")
    if not is_id(message_id) or decision not in {"approve", "reject"}:
        model_admin.message_user(request, gettext("Choose Approve or Reject."), messages.ERROR)
        return
    comment = request.POST.get("comment", "").replace("\0", "")[:MAX_COMMENT]
    try:
        status = decide(
            int(message_id),
            name,
            approved=decision == "approve",
            user=request.user,
            comment=comment,
            database=alias(),
        )
    except InvalidMessage:
        model_admin.message_user(request, TOLD["unknown"], messages.ERROR)
        return
    except PermissionDenied:
        model_admin.message_user(request, gettext("You have no permission to decide this."), messages.ERROR)
        return
    if status == "decided":
        approved, rejected = (
            gettext("{name} of message {id} was approved."),
            gettext("{name} of message {id} was rejected."),
        )
        words = approved if decision == "approve" else rejected
        said = words.format(name=name, id=message_id)
        model_admin.message_user(request, said, messages.SUCCESS)
        audit_log.written(request, Message, [int(message_id)], said)
    else:
        model_admin.message_user(request, TOLD[status], messages.WARNING)
