"""The messages that wait or run."""

from __future__ import annotations

import datetime as dt
from typing import TYPE_CHECKING, Any, ClassVar

from django import forms
from django.contrib import admin, messages
from django.contrib.admin.helpers import ACTION_CHECKBOX_NAME
from django.db import connections, transaction
from django.http import HttpResponseRedirect
from django.template.response import TemplateResponse
from django.urls import path
from django.utils.translation import gettext, gettext_lazy, ngettext_lazy

from django_pgqueue import functions
from django_pgqueue.admin.edit import ask_page, criteria
from django_pgqueue.admin.message import approvals, change_page, emitted
from django_pgqueue.admin.message.awaited import Awaited
from django_pgqueue.admin.message.change_page import Detail, MessageForm
from django_pgqueue.admin.message.related import parent
from django_pgqueue.admin.parts import actions, display, filters
from django_pgqueue.admin.parts.columns import Columns, is_suspended
from django_pgqueue.admin.parts.content import ErrorTexts
from django_pgqueue.admin.parts.database import alias, may_see, now, once, url
from django_pgqueue.admin.parts.expressions import Short, SmallJson
from django_pgqueue.admin.parts.paginator import LinePaginator
from django_pgqueue.admin.parts.read_only import ReadOnlyAdmin, is_id, may_see_content
from django_pgqueue.admin.parts.status import Status, order, status_of
from django_pgqueue.exceptions import PgQueueError
from django_pgqueue.models.tables import Message
from django_pgqueue.monitoring.overview.clamped import Moment
from django_pgqueue.monitoring.overview.coverage import Service
from django_pgqueue.values.times import to_epoch_ms

if TYPE_CHECKING:
    from django.db.models import Model, QuerySet
    from django.http import HttpRequest, HttpResponse

    from django_pgqueue.admin.parts.actions import Chosen

# Columns that every page about messages fetches unchanged. Not JSON and times: rows written by hand may have values
# that Python cannot hold, so PostgreSQL converts these to texts and moments.
BRIEF = (
    "id", "dequeue_at", "unlock_at", "alone_at", "unknown_since", "parked_at", "attempt", "max_attempts", "lost",
    "priority", "queue", "channel", "task", "worker", "max_lost", "version", "after_policy",
    "suspended_attempt",
)  # fmt: skip
LISTED = 20
DELAYS = {
    "1 minute": dt.timedelta(minutes=1),
    "10 minutes": dt.timedelta(minutes=10),
    "1 hour": dt.timedelta(hours=1),
    "1 day": dt.timedelta(days=1),
    "1 week": dt.timedelta(weeks=1),
}


class PostponeForm(forms.Form):
    delay = forms.ChoiceField(
        label=gettext_lazy("Not before"), choices=[(delay, delay) for delay in DELAYS], initial="1 hour"
    )

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        fields: Any = self.fields
        fields["delay"].choices = [(name, criteria.from_now(delay)) for name, delay in DELAYS.items()]


@admin.register(Message)
class MessageAdmin(ReadOnlyAdmin):
    form = MessageForm
    gone = gettext_lazy("ended")
    is_live_page = True
    change_form_template = "admin/django_pgqueue/message/change_form.html"
    change_list_template = "admin/django_pgqueue/message/change_list.html"
    list_filter = (
        filters.StatusFilter,
        filters.MessageQueueFilter,
        filters.TaskFilter,
        filters.MessageChannelFilter,
        filters.ArgumentFilter,
        ("dequeue_at", filters.DequeueRangeFilter),
        ("created_at", filters.MomentRangeFilter),
    )
    default_columns: ClassVar[tuple[str, ...]] = ("id", "status", "task", "error", "queue", "dequeue_at")
    search_fields = ("id", "task")
    search_help_text = gettext_lazy("The id of a message, or a part of a task's name.")
    actions = ("run_now", "postpone", "emit", "cancel")

    def get_urls(self) -> list[Any]:
        edit = self.admin_site.admin_view(lambda request: ask_page.view(self, request, delays=DELAYS))
        decide = self.admin_site.admin_view(self.approvals_view)
        return [
            path("edit/", edit, name="django_pgqueue_message_edit"),
            path("approvals/", decide, name="django_pgqueue_message_approvals"),
            *super().get_urls(),
        ]

    def changelist_view(self, request: HttpRequest, extra_context: dict[str, Any] | None = None) -> HttpResponse:
        links = {"edit_url": ask_page.url_of(self, request)}
        return super().changelist_view(request, {**links, **(extra_context or {})})

    def columns(self, request: HttpRequest) -> tuple[Any, ...]:
        moment = now(request)
        shown = Columns(moment, Service.at(moment, using=alias()), ErrorTexts.of(request))
        return (
            "id",
            shown.status,
            shown.task,
            shown.error,
            shown.queue,
            shown.dequeue_at,
            "priority",
            shown.attempts,
            shown.worker,
            shown.channel,
            shown.created_at,
        )

    def get_ordering(self, request: HttpRequest) -> tuple[Any, ...]:
        status = request.GET.get("status")
        return order(Status(status)) if status is not None and status in Status else self.ordering

    def get_paginator(self, request: HttpRequest, queryset: QuerySet[Any], per_page: int, *args: Any) -> Any:
        status = request.GET.get("status")
        if status in {Status.SCHEDULED, Status.READY} and "o" not in request.GET and queryset.model is Message:
            return LinePaginator(queryset, per_page, rows=self.rows(request), ready=status == Status.READY)
        return super().get_paginator(request, queryset, per_page, *args)

    def rows(self, request: HttpRequest) -> QuerySet[Any]:
        found: QuerySet[Any] = (
            self.get_queryset(request)
            .only(*BRIEF)
            .annotate(error=Short("last_error"), created=Moment("created_at"), report=SmallJson("progress"))
        )
        return found

    @admin.action(description=gettext_lazy("Run now"), permissions=["run"])
    def run_now(self, request: HttpRequest, queryset: QuerySet[Message]) -> HttpResponse | None:
        """A message that waits for others runs only from its own page, by a user who was asked."""
        chosen = actions.chosen(self, request, queryset)
        is_page = [str(pk) for pk in chosen.ids] == [request.POST.get("page")]
        awaited = Awaited.by(chosen.ids[0], now(request)) if is_page else None
        if awaited is not None and "confirmed" not in request.POST:
            return self._ask(request, queryset, action="run_now", awaited=awaited)
        outcome = actions.run_now(chosen, now(request), using=alias(), break_dependencies=awaited is not None)
        alone = gettext("made ready to run now, without waiting for others")
        outcome.tell(self, request, gettext("made ready to run now") if awaited is None else alone)
        return self.back(request)

    @admin.action(description=gettext_lazy("Postpone…"), permissions=["change"])
    def postpone(self, request: HttpRequest, queryset: QuerySet[Message]) -> HttpResponse | None:
        form = PostponeForm(request.POST if "confirmed" in request.POST else None)
        if not form.is_valid():
            return self._ask(request, queryset, action="postpone", form=form)
        delay = form.cleaned_data["delay"]
        outcome = actions.postpone(self._confirmed(request, queryset), DELAYS[delay], now(request), using=alias())
        outcome.tell(self, request, gettext("postponed: {delay}").format(delay=criteria.from_now(DELAYS[delay])))
        return self.back(request)

    @admin.action(description=gettext_lazy("Emit their events…"), permissions=["emit"])
    def emit(self, request: HttpRequest, queryset: QuerySet[Message]) -> HttpResponse | None:
        form = emitted.PayloadForm(request.POST if "confirmed" in request.POST else None)
        if not form.is_valid():
            return self._ask(request, queryset, action="emit", form=form)
        chosen = self._confirmed(request, queryset)
        outcome = actions.Outcome(chosen)
        try:
            with transaction.atomic(using=alias()):
                emitted.emit_for(chosen.ids, form.cleaned_data["payload"], outcome)
        except PgQueueError as error:
            self.message_user(request, gettext("Nothing was emitted: {error}").format(error=error), messages.ERROR)
            return self.back(request)
        outcome.tell(self, request, gettext("got the event that they waited for"))
        return self.back(request)

    @admin.action(description=gettext_lazy("Cancel…"), permissions=["cancel"])
    def cancel(self, request: HttpRequest, queryset: QuerySet[Message]) -> HttpResponse | None:
        if "confirmed" not in request.POST:
            return self._ask(request, queryset, action="cancel")
        outcome = actions.cancel(self._confirmed(request, queryset), now(request), using=alias())
        outcome.tell(self, request, gettext("cancelled"))
        return self.back(request)

    def _ask(
        self,
        request: HttpRequest,
        queryset: QuerySet[Message],
        *,
        action: str,
        form: forms.Form | None = None,
        awaited: Awaited | None = None,
    ) -> HttpResponse:
        ids = actions.chosen(self, request, queryset).ids
        moment = now(request)
        shown = Columns(moment, Service.at(moment, using=alias()), ErrorTexts.of(request))
        first = {message.pk: message for message in self.rows(request).filter(pk__in=ids[:LISTED])}
        context = {
            **self.admin_site.each_context(request),
            "title": question(action, ids),
            "action": action,
            "confirm": answer(action, ids),
            "form": form,
            "awaited": awaited,
            "media": self.media,
            "opts": self.opts,
            "messages_listed": [
                {"id": pk, "task": shown.task(first[pk]), "queue": first[pk].queue, "status": shown.status(first[pk])}
                for pk in ids[:LISTED]
                if pk in first
            ],
            "more": max(0, len(ids) - LISTED),
            "across": request.POST.get("select_across") == "1",
            "newest": max(ids, default=0),
            "checkbox": ACTION_CHECKBOX_NAME,
            "selected": request.POST.getlist(ACTION_CHECKBOX_NAME),
            "list_url": self.list_url(),
            "back": self.page_of(request) or request.get_full_path(),
            "page": request.POST.get("page", ""),
        }
        return TemplateResponse(request, "admin/django_pgqueue/message/ask.html", context)

    def _confirmed(self, request: HttpRequest, queryset: QuerySet[Message]) -> Chosen:
        """Returns the selected messages, without those that came while the user read the question."""
        newest = request.POST.get("newest", "")
        return actions.chosen(self, request, queryset.filter(pk__lte=int(newest)) if is_id(newest) else queryset)

    # Decisions

    def approvals_view(self, request: HttpRequest) -> HttpResponse:
        """Lists what waits for the decision of a person, and records decisions."""
        return self.answered(request, lambda: approvals.page(self, request))

    # The page of one message

    def get_fieldsets(self, request: HttpRequest, obj: Message | None = None) -> Any:
        return self.shown(request).fieldsets(**self._how(request, obj))

    def get_readonly_fields(self, request: HttpRequest, obj: Message | None = None) -> Any:
        return self.shown(request).readonly(**self._how(request, obj))

    def _how(self, request: HttpRequest, message: Message | None) -> dict[str, bool]:
        waits = message is not None and status_of(message.dequeue_at, message.unlock_at, now(request)) != Status.RUNNING
        timed = message is None or (
            message.after_policy is None and message.parked_at is None and not is_suspended(message)
        )
        return {
            "editable": self.has_change_permission(request, message),
            "waits": waits,
            "timed": timed,
            "durable": message is not None and self.shown(request).is_durable(message),
        }

    def has_change_permission(self, request: HttpRequest, obj: Model | None = None) -> bool:
        """A message that runs, or whose worker went away, cannot be changed any more."""
        waits = not isinstance(obj, Message) or obj.unlock_at is None
        return waits and admin.ModelAdmin.has_change_permission(self, request)

    def one(self, request: HttpRequest) -> QuerySet[Any]:
        found: QuerySet[Any] = (
            self.get_queryset(request)
            .only(*BRIEF, "unique_key", "last_error", "after_ids", "awaited_event")
            .annotate(
                created=Moment("created_at"),
                locked=Moment("locked_at"),
                cancel_requested=Moment("cancel_requested_at"),
                again_from=parent("enqueued_again_from"),
                schedule_name=parent("schedule"),
            )
        )
        return found

    def shown(self, request: HttpRequest) -> Detail:
        def look() -> Detail:
            moment = now(request)
            return Detail(
                moment,
                Service.at(moment, using=alias()),
                ErrorTexts.of(request),
                sees_content=may_see_content(request),
                sees_history=may_see(request.user, "attempt"),
            )

        detail: Detail = once(request, "shown", look)
        return detail

    def render_change_form(self, request: HttpRequest, context: Any, *args: Any, **kwargs: Any) -> Any:
        allowed = {
            action
            for action, may in (
                ("run_now", self.has_run_permission(request)),
                ("postpone", admin.ModelAdmin.has_change_permission(self, request)),
                ("emit", self.has_emit_permission(request)),
                ("cancel", self.has_cancel_permission(request)),
            )
            if may
        }
        context |= {
            "buttons": change_page.buttons(context["original"], now(request), allowed),
            "checkbox": ACTION_CHECKBOX_NAME,
            "list_url": self.list_url(),
            "show_save_and_continue": False,
        }
        return super().render_change_form(request, context, *args, **kwargs)

    def refused(self, request: HttpRequest, object_id: str) -> HttpResponse | None:
        """Warns a user whose message a worker has taken meanwhile: it is no error of the user."""
        message = self.get_object(request, object_id)
        if message is None or message.unlock_at is None or not admin.ModelAdmin.has_change_permission(self, request):
            return None
        self.message_user(request, TAKEN, messages.WARNING)
        return HttpResponseRedirect(url("message_change", message.pk))

    def save_model(self, request: HttpRequest, obj: Message, form: Any, change: bool) -> None:  # noqa: ARG002
        connection, changed = connections[alias()], set(form.changed_data)
        done = True
        if "priority" in changed:
            done = functions.message_prioritise(connection, obj.pk, obj.priority)
        if "dequeue_at" in changed and done:
            done = functions.message_move(connection, obj.pk, dequeue_at=to_epoch_ms(obj.dequeue_at))
        obj.__dict__["taken"] = not done

    def log_change(self, request: HttpRequest, obj: Any, message: Any) -> Any:
        return None if obj.__dict__.get("taken") else super().log_change(request, obj, message)

    def response_change(self, request: HttpRequest, obj: Any) -> HttpResponse:
        if obj.__dict__.get("taken"):
            self.message_user(request, TAKEN, messages.WARNING)
        else:
            self.message_user(request, gettext("Message {id} was changed.").format(id=obj.pk), messages.SUCCESS)
        return HttpResponseRedirect(url("message_change", obj.pk))

    def _get_obj_does_not_exist_redirect(self, request: HttpRequest, opts: Any, object_id: str) -> HttpResponse:
        """Redirects to the history, which has the attempts of a message that left the queue."""
        if is_id(object_id) and may_see(request.user, "attempt"):
            text = gettext("Message {id} is not in the queue (any more). Its attempts in the history:")
            self.message_user(request, text.format(id=object_id), messages.INFO)
            return HttpResponseRedirect(url("attempt_changelist", message_id=int(object_id)))
        answer: HttpResponse = super()._get_obj_does_not_exist_redirect(request, opts, object_id)  # type: ignore[misc]
        return answer


def question(action: str, ids: list[int]) -> str:
    """Returns the title of the page that asks before an action."""
    words = {
        "run_now": ngettext_lazy(
            "Run {count} message without waiting for others?",
            "Run {count} messages without waiting for others?",
            len(ids),
        ),
        "postpone": ngettext_lazy("Postpone {count} message?", "Postpone {count} messages?", len(ids)),
        "emit": ngettext_lazy("Emit the event of {count} message?", "Emit the events of {count} messages?", len(ids)),
        "cancel": ngettext_lazy("Cancel {count} message?", "Cancel {count} messages?", len(ids)),
    }
    return str(words[action]).format(count=display.number(len(ids)))


def answer(action: str, ids: list[int]) -> str:
    """Returns what the button says that confirms an action."""
    words = {
        "run_now": gettext_lazy("Run it without waiting"),
        "postpone": ngettext_lazy("Postpone it", "Postpone them", len(ids)),
        "emit": ngettext_lazy("Emit it", "Emit them", len(ids)),
        "cancel": ngettext_lazy("Cancel it", "Cancel them", len(ids)),
    }
    return str(words[action])


TAKEN = gettext_lazy("The message was not changed: a worker has taken it meanwhile, or it has ended.")
