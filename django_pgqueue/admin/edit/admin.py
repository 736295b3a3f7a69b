"""Edits: a list, and a page that shows how far one is."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from django.contrib import admin, messages
from django.contrib.admin.helpers import ACTION_CHECKBOX_NAME
from django.utils.html import format_html
from django.utils.translation import gettext, gettext_lazy, ngettext

from django_pgqueue import control
from django_pgqueue.admin.edit import ask_page, criteria
from django_pgqueue.admin.parts import actions, audit_log, display
from django_pgqueue.admin.parts.database import alias
from django_pgqueue.admin.parts.read_only import ReadOnlyAdmin, may_see_content
from django_pgqueue.models.tables import Edit
from django_pgqueue.monitoring.overview.clamped import Moment

if TYPE_CHECKING:
    from django.db.models import QuerySet
    from django.http import HttpRequest, HttpResponse
    from django.utils.safestring import SafeString

TIMES = {"asked_for": "asked_at", "started": "started_at", "stopped": "stopped_at", "finished": "finished_at"}


@admin.display(description=gettext_lazy("action"))
def action(edit: Edit) -> str:
    words = str(ask_page.WORDS.get(edit.action, edit.action))
    for name, value in criteria.members(edit.parameters):
        words += f": {criteria.moment(value) if name == 'run_at' else value}"
    return words


@admin.display(description=gettext_lazy("state"))
def state(edit: Edit) -> SafeString:
    if edit.error is not None:
        return display.label(gettext("ended with an error"), "red")
    if edit.finished_at is not None:
        return display.label(gettext("finished"), "green")
    if edit.stopped_at is not None:
        return display.label(gettext("stopped"), "amber")
    return (
        display.label(gettext("working"), "blue")
        if edit.started_at is not None
        else display.label(gettext("waits"), "grey")
    )


@admin.display(description=gettext_lazy("progress"))
def progress(edit: Edit) -> SafeString:
    percent = percent_of(edit)
    words = f"{percent}\N{NO-BREAK SPACE}%"
    return format_html(
        '<progress max="100" value="{}" aria-label="{}">{}</progress> {}', percent, gettext("Progress"), words, words
    )


def percent_of(edit: Edit) -> int:
    """Rounded down: 100 is the end."""
    if edit.finished_at is not None and edit.error is None:
        return 100
    return (edit.position - edit.first_id + 1) * 100 // max(1, edit.last_id - edit.first_id + 1)


@admin.display(description=gettext_lazy("result"))
def result(edit: Edit) -> str:
    awaiting, skipped = edit.awaiting, edit.skipped
    counts = [
        (edit.done, gettext("{count} done")),
        (edit.asked, gettext("{count} asked to stop")),
        (
            awaiting,
            ngettext("{count} left out: it waits for others", "{count} left out: they wait for others", awaiting),
        ),
        (
            skipped,
            ngettext(
                "{count} not changed: it runs, or needs no change",
                "{count} not changed: they run, or need no change",
                skipped,
            ),
        ),
    ]
    shown = [words.format(count=display.number(count)) for count, words in counts if count]
    return ", ".join(shown) or gettext("{count} done").format(count=0)


@admin.display(description=gettext_lazy("error"))
def error(edit: Edit) -> str:
    return edit.error or display.NOTHING


@admin.display(description=gettext_lazy("asked by"))
def asked_by(edit: Edit) -> SafeString | str:
    return display.shortened(edit.asked_by, 60)


@admin.display(description=gettext_lazy("stopped by"))
def stopped_by(edit: Edit) -> SafeString | str:
    return display.shortened(edit.stopped_by, 60)


@admin.display(description=gettext_lazy("asked at"))
def asked_at(edit: Edit) -> SafeString | str:
    return display.moment(getattr(edit, "asked_for", None))


@admin.display(description=gettext_lazy("started at"))
def started_at(edit: Edit) -> SafeString | str:
    return display.moment(getattr(edit, "started", None))


@admin.display(description=gettext_lazy("finished at"))
def finished_at(edit: Edit) -> SafeString | str:
    return display.moment(getattr(edit, "finished", None))


@admin.register(Edit)
class EditAdmin(ReadOnlyAdmin):
    is_live_page = True
    change_form_template = "admin/django_pgqueue/message/change_form.html"
    actions = ("stop", "resume")

    def get_list_display(self, request: HttpRequest) -> tuple[Any, ...]:
        return ("id", action, self._matching(request), state, progress, result, asked_by, asked_at)

    def rows(self, request: HttpRequest) -> QuerySet[Any]:
        found: QuerySet[Any] = self.get_queryset(request).annotate(
            **{name: Moment(column) for name, column in TIMES.items()}
        )
        return found

    def get_fieldsets(self, request: HttpRequest, obj: Edit | None = None) -> Any:  # noqa: ARG002
        what = [state, progress, result, error, action, self._matching(request)]
        return [(None, {"fields": [*what, asked_by, asked_at, started_at, finished_at, stopped_by]})]

    def _matching(self, request: HttpRequest) -> Any:
        sees = may_see_content(request)

        @admin.display(description=gettext_lazy("what matches"))
        def matching(edit: Edit) -> SafeString | str:
            words = ", ".join(criteria.words(edit.filter, sees_content=sees))
            return display.shortened(words or gettext("everything"), 200)

        return matching

    def render_change_form(self, request: HttpRequest, context: Any, *args: Any, **kwargs: Any) -> Any:
        edit = context["original"]
        is_open = edit.finished_at is None and ask_page.may(request.user, edit.action)
        button = (
            {"action": "resume", "words": gettext("Resume")}
            if edit.stopped_at
            else {"action": "stop", "words": gettext("Stop")}
        )
        context |= {"buttons": [button] if is_open else [], "checkbox": ACTION_CHECKBOX_NAME}
        return super().render_change_form(request, context, *args, **kwargs)

    def has_edit_permission(self, request: HttpRequest) -> bool:
        return any(ask_page.may(request.user, one) for one in ask_page.PERMISSIONS)

    @admin.action(description=gettext_lazy("Stop"), permissions=["edit"])
    def stop(self, request: HttpRequest, queryset: QuerySet[Edit]) -> HttpResponse | None:
        by = audit_log.name_of_user(request)
        return self._change(
            request, queryset, gettext("stopped"), lambda pk: control.stop_edit(pk, by=by, database=alias())
        )

    @admin.action(description=gettext_lazy("Resume"), permissions=["edit"])
    def resume(self, request: HttpRequest, queryset: QuerySet[Edit]) -> HttpResponse | None:
        return self._change(request, queryset, gettext("resumed"), lambda pk: control.resume_edit(pk, database=alias()))

    def _change(self, request: HttpRequest, queryset: QuerySet[Edit], words: str, change: Any) -> HttpResponse | None:
        """An edit is stopped and resumed by users who may do what it does."""
        found = list(queryset.values_list("pk", "action")[: actions.MOST])
        if self.are_gone(request, found):
            return self.back(request)
        done = [pk for pk, one in found if ask_page.may(request.user, one) and change(pk)]
        if done:
            audit_log.written(request, Edit, done, f"{words[0].upper()}{words[1:]}.")
            edits = ngettext("{count} edit", "{count} edits", len(done)).format(count=len(done))
            self.message_user(request, f"{edits} {words}.", messages.SUCCESS)
        if len(done) < len(found):
            passed = [pk for pk, _ in found if pk not in done]
            text = gettext("Not {done}: {ids}. It has ended, is so already, or you may not do what it does.")
            text = text.format(done=words, ids=actions.listed(passed))
            self.message_user(request, text, messages.WARNING)
        return self.back(request)
