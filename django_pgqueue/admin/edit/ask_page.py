"""The page that asks what to do with everything that a list of messages finds."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from django import forms
from django.contrib import messages
from django.contrib.admin.options import IncorrectLookupParameters
from django.core.exceptions import PermissionDenied, ValidationError
from django.db import connections
from django.http import HttpResponseNotAllowed, HttpResponseRedirect
from django.template.response import TemplateResponse
from django.urls import reverse
from django.utils.html import format_html
from django.utils.translation import gettext, gettext_lazy, ngettext

from django_pgqueue import control, functions
from django_pgqueue.admin.edit import criteria
from django_pgqueue.admin.parts import audit_log, database
from django_pgqueue.admin.parts.database import alias, may_see, url
from django_pgqueue.admin.parts.display import number
from django_pgqueue.exceptions import InvalidEdit
from django_pgqueue.models.tables import Attempt, Edit
from django_pgqueue.values.limits import MAX_NAME_BYTES
from django_pgqueue.values.names import name_of

if TYPE_CHECKING:
    import datetime as dt
    from collections.abc import Mapping

    from django.http import HttpRequest, HttpResponse
    from django.utils.safestring import SafeString

    from django_pgqueue.admin.parts.read_only import ReadOnlyAdmin

COUNT_SECONDS = 0.3
PERMISSIONS = {
    "run_now": "run_message",
    "postpone": "change_message",
    "cancel": "cancel_message",
    "delete": "delete_message",
    "move": "change_message",
    "prioritise": "change_message",
    "enqueue_again": "run_message",
}
WORDS = {
    "run_now": gettext_lazy("Run now"),
    "postpone": gettext_lazy("Postpone"),
    "cancel": gettext_lazy("Cancel, and ask those that run to stop"),
    "delete": gettext_lazy("Delete, without a trace in the history"),
    "move": gettext_lazy("Move to another queue"),
    "prioritise": gettext_lazy("Change the priority"),
    "enqueue_again": gettext_lazy("Enqueue again"),
}


def may(user: Any, action: str) -> bool:
    return bool(user.has_perm(f"django_pgqueue.{PERMISSIONS[action]}"))


def allowed(admin: ReadOnlyAdmin, user: Any) -> list[str]:
    """Returns the actions of edits that the user may do with what the list shows: messages, or the history."""
    is_history = admin.model is Attempt
    return [action for action in PERMISSIONS if (action == "enqueue_again") is is_history and may(user, action)]


def url_of(admin: ReadOnlyAdmin, request: HttpRequest) -> str:
    """Returns the URL of the page for what the list shows.  Empty: the user may do nothing with it."""
    if not allowed(admin, request.user):
        return ""
    address = reverse(f"admin:django_pgqueue_{admin.opts.model_name}_edit", current_app=admin.admin_site.name)
    query = request.GET.urlencode()
    return f"{address}?{query}" if query else address


class EditForm(forms.Form):
    action = forms.ChoiceField(label=gettext_lazy("Do"))
    delay = forms.ChoiceField(label=gettext_lazy("Not before (postpone)"), required=False)
    queue = forms.CharField(label=gettext_lazy("To the queue (move)"), required=False, max_length=MAX_NAME_BYTES)
    priority = forms.IntegerField(
        label=gettext_lazy("Priority (-100 to 100)"), required=False, min_value=-100, max_value=100
    )

    def __init__(self, data: Any, *, actions: list[str], delays: Mapping[str, dt.timedelta]) -> None:
        super().__init__(data)
        self.delays = delays
        fields: Any = self.fields
        fields["action"].choices = [(action, WORDS[action]) for action in actions]
        if actions == ["enqueue_again"]:
            for name in ("delay", "queue", "priority"):
                del fields[name]
            return
        fields["delay"].choices = [("", "")] + [(delay, criteria.from_now(delays[delay])) for delay in delays]

    def clean(self) -> None:
        given = super().clean() or self.cleaned_data
        needed = {"postpone": "delay", "move": "queue", "prioritise": "priority"}.get(str(given.get("action")))
        if needed is not None and needed not in self.errors and given.get(needed) in {None, ""}:
            self.add_error(needed, gettext("This action needs it."))
        if given.get("queue"):
            try:
                name_of("queue", given["queue"], ValidationError)
            except ValidationError as error:
                self.add_error("queue", error)

    def parameters(self, now: dt.datetime) -> dict[str, Any]:
        match self.cleaned_data["action"]:
            case "postpone":
                return {"run_at": now + self.delays[self.cleaned_data["delay"]]}
            case "move":
                return {"queue": self.cleaned_data["queue"]}
            case "prioritise":
                return {"priority": self.cleaned_data["priority"]}
        return {}


def view(admin: Any, request: HttpRequest, *, delays: Mapping[str, dt.timedelta] | None = None) -> HttpResponse:
    if request.method not in {"GET", "HEAD", "POST"}:
        return HttpResponseNotAllowed(["GET", "HEAD", "POST"])
    if not (admin.has_view_or_change_permission(request) and allowed(admin, request.user)):
        raise PermissionDenied
    answer: HttpResponse = admin.answered(
        request, lambda: _answer(admin, request, delays or {}), instead=_list_url(admin, request)
    )
    return answer


def _answer(admin: Any, request: HttpRequest, delays: Mapping[str, dt.timedelta]) -> HttpResponse:
    may_do = allowed(admin, request.user)
    back = _list_url(admin, request)
    try:
        which = criteria.of_list(admin, request)
        what = which.as_json(may_do[0])
    except IncorrectLookupParameters:
        return HttpResponseRedirect(admin.list_url())
    except InvalidEdit as error:
        admin.message_user(request, str(error), messages.ERROR)
        return HttpResponseRedirect(back)
    form = EditForm(request.POST if "confirmed" in request.POST else None, actions=may_do, delays=delays)
    if request.method == "POST" and form.is_valid():
        return asked(admin, request, form.cleaned_data["action"], which, back, **form.parameters(database.now(request)))
    counted = functions.edit_count(connections[alias()], may_do[0], what, seconds=COUNT_SECONDS)
    context = {
        **admin.admin_site.each_context(request),
        "title": gettext("Everything that matches"),
        "opts": admin.opts,
        "media": admin.media,
        "form": form,
        "summary": summary(counted.matches, criteria.words(what), is_exact=counted.is_exact),
        "is_history": admin.model is Attempt,
        "criteria": criteria.words(what),
        "list_url": admin.list_url(),
        "back": back,
    }
    return TemplateResponse(request, "admin/django_pgqueue/edit/ask.html", context)


def _list_url(admin: Any, request: HttpRequest) -> str:
    """Returns the URL of the list with the filters of the request."""
    return f"{admin.list_url().partition('?')[0]}?{request.GET.urlencode()}"


def summary(count: int, found: list[str], *, is_exact: bool) -> SafeString:
    """Says how many messages it is about, and what chose them."""
    words = ngettext("{count} message matches now{by}.", "{count} messages match now{by}.", count)
    if not is_exact:
        words = gettext("At least {count} messages match now{by}.")
    by = gettext(", by {criteria}").format(criteria=", ".join(found)) if found else gettext(": everything in the queue")
    return format_html(words, count=format_html("<strong>{}</strong>", number(count)), by=by)


def asked(
    admin: ReadOnlyAdmin, request: HttpRequest, action: str, which: control.Filter, back: str, **how: Any
) -> HttpResponse:
    """Asks for an edit on behalf of the user, who may do it, and leads to its page."""
    edit = control.edit(action, which, by=audit_log.name_of_user(request), database=alias(), **how)
    what = ", ".join(criteria.words(which.as_json(action), sees_content=False))
    audit_log.written(request, Edit, [edit], f"{WORDS[action]}: {what}")
    text = gettext("Edit {id} begins as soon as a worker sees it, within some seconds.").format(id=edit)
    admin.message_user(request, text, messages.SUCCESS)
    return HttpResponseRedirect(url("edit_change", edit) if may_see(request.user, "edit") else back)
