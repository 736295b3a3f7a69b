"""The messages that wait or run."""

from __future__ import annotations

import datetime as dt
from typing import TYPE_CHECKING, Any

from django import forms
from django.contrib import admin, messages
from django.contrib.admin.helpers import ACTION_CHECKBOX_NAME
from django.http import HttpResponseRedirect
from django.template.loader import render_to_string
from django.template.response import TemplateResponse
from django.urls import reverse
from django.utils.html import format_html, format_html_join

from django_pgqueue.admin import actions, attempt, display, filters
from django_pgqueue.admin.database import alias, now, once
from django_pgqueue.admin.expressions import Moment, Pretty, Short
from django_pgqueue.admin.readonly import ReadOnlyAdmin, is_id
from django_pgqueue.admin.service import Service
from django_pgqueue.admin.status import Status, order, status_of
from django_pgqueue.models import Attempt, Message, QueueState

if TYPE_CHECKING:
    from collections.abc import Iterator

    from django.db.models import QuerySet
    from django.http import HttpRequest, HttpResponse
    from django.utils.safestring import SafeString

    from django_pgqueue.admin.actions import Chosen

TONES = {Status.SCHEDULED: "blue", Status.READY: "green", Status.RUNNING: "amber", Status.EXPIRED: "red"}
# What any page about a message fetches as it is. JSON and times are not among it: rows written by hand may have some
# that Python can not hold, so PostgreSQL makes texts and moments of them.
BRIEF = ("id", "dequeue_at", "unlock_at", "attempt", "max_attempts", "priority", "queue", "channel", "task", "worker")
ATTEMPTS_SHOWN = 50
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
        label="Not before", choices=[(delay, f"{delay} from now") for delay in DELAYS], initial="1 hour"
    )


class Columns:
    """How the list shows a message, at one moment and with the workers of that moment."""

    def __init__(self, now: dt.datetime, service: Service) -> None:
        self.now = now
        self.service = service

    @admin.display(description="task")
    def task(self, message: Message) -> SafeString | str:
        return display.task(message.task)

    @admin.display(description="queue")
    def queue(self, message: Message) -> SafeString | str:
        name = display.shortened(message.queue, 40)
        if not self.service.lacks(message):
            return name
        return format_html(
            '{} <span class="pgqueue-label pgqueue-red" title="{}">no worker</span>', name, no_worker(message)
        )

    @admin.display(description="channel")
    def channel(self, message: Message) -> SafeString | str:
        return display.shortened(message.channel, 40)

    @admin.display(description="status")
    def status(self, message: Message) -> SafeString:
        status = status_of(message.dequeue_at, message.unlock_at, self.now)
        return display.label(status, TONES[status])

    @admin.display(description="dequeue at")
    def dequeue_at(self, message: Message) -> SafeString | str:
        far = display.relative(message.dequeue_at, self.now)
        return format_html("{}{}", display.moment(message.dequeue_at), display.line(far) if far else "")

    @admin.display(description="attempt")
    def attempts(self, message: Message) -> str:
        return f"{message.attempt} of {display.NOTHING if message.max_attempts is None else message.max_attempts}"

    @admin.display(description="worker")
    def worker(self, message: Message) -> SafeString | str:
        return display.shortened(message.worker, 24)

    @admin.display(description="last error")
    def error(self, message: Message) -> SafeString | str:
        return display.sentence(display.shortened(getattr(message, "error", None), 80))

    @admin.display(description="created at")
    def created_at(self, message: Message) -> SafeString | str:
        return display.moment(getattr(message, "created", None))


class Detail(Columns):
    """How the page of one message shows it."""

    def __init__(self, now: dt.datetime, service: Service, *, user: Any) -> None:
        super().__init__(now, service)
        self.user = user

    def fieldsets(self) -> list[tuple[str | None, dict[str, Any]]]:
        return [
            (
                None,
                {
                    "fields": [
                        self.status,
                        self.task,
                        self.served_queue,
                        "channel",
                        "priority",
                        self.dequeue_at,
                        self.created_at,
                    ]
                },
            ),
            ("Attempts", {"fields": [self.attempts, self.lock, self.progress, self.last_error, self.finished]}),
            ("What it says", {"fields": [self.content, self.headers, self.state, "unique_key"]}),
        ]

    @admin.display(description="queue")
    def served_queue(self, message: Message) -> SafeString | str:
        notes = [*paused(message.queue), *([no_worker(message)] if self.service.lacks(message) else [])]
        if not notes:
            return message.queue
        return format_html(
            "{}{}", message.queue, format_html_join("", '<p class="pgqueue-note">{}</p>', ((note,) for note in notes))
        )

    @admin.display(description="lock")
    def lock(self, message: Message) -> SafeString | str:
        if message.unlock_at is None:
            return display.NOTHING
        asked = getattr(message, "cancel_requested", None)
        return format_html(
            "held by {} since {}, until {}{}",
            message.worker,
            display.moment(getattr(message, "locked", None)),
            display.moment(message.unlock_at),
            format_html("; asked to stop at {}", display.moment(asked)) if asked else "",
        )

    @admin.display(description="progress")
    def progress(self, message: Message) -> SafeString | str:
        return display.block(getattr(message, "pretty_progress", None))

    @admin.display(description="last error")
    def last_error(self, message: Message) -> SafeString | str:
        return display.block(message.last_error)

    @admin.display(description="finished attempts")
    def finished(self, message: Message) -> SafeString | str:
        if not may_see(self.user, "attempt"):
            return display.quiet("You have no permission to see the history.")
        found: list[dict[str, Any]] = message.__dict__["finished"]
        if not found:
            return "none"
        context = {
            "attempts": found[:ATTEMPTS_SHOWN],
            "more": len(found) > ATTEMPTS_SHOWN,
            "url": attempts_url(message.pk),
        }
        return render_to_string("admin/pgqueue/message/attempts.html", context)

    @admin.display(description="content")
    def content(self, message: Message) -> SafeString | str:
        return display.block(getattr(message, "pretty_content", None))

    @admin.display(description="headers")
    def headers(self, message: Message) -> SafeString | str:
        return display.block(getattr(message, "pretty_headers", None))

    @admin.display(description="state")
    def state(self, message: Message) -> SafeString | str:
        return display.block(getattr(message, "pretty_state", None))


@admin.register(Message)
class MessageAdmin(ReadOnlyAdmin):
    list_filter = (
        filters.StatusFilter,
        filters.MessageQueueFilter,
        filters.TaskFilter,
        filters.ChannelFilter,
        ("dequeue_at", filters.DequeueRangeFilter),
        ("created_at", filters.MomentRangeFilter),
    )
    search_fields = ("id", "task")
    search_help_text = "The id of a message, or a part of a task's name."
    actions = ("run_now", "postpone", "cancel")

    def get_list_display(self, request: HttpRequest) -> tuple[Any, ...]:
        moment = now(request)
        shown = Columns(moment, Service.at(moment, using=alias()))
        return (
            "id",
            shown.status,
            shown.task,
            shown.queue,
            shown.dequeue_at,
            "priority",
            shown.attempts,
            shown.error,
            shown.worker,
            shown.channel,
            shown.created_at,
        )

    def get_ordering(self, request: HttpRequest) -> tuple[Any, ...]:
        status = request.GET.get("status")
        return order(Status(status)) if status is not None and status in Status else self.ordering

    def rows(self, request: HttpRequest) -> QuerySet[Any]:
        found: QuerySet[Any] = (
            self.get_queryset(request).only(*BRIEF).annotate(error=Short("last_error"), created=Moment("created_at"))
        )
        return found

    @admin.action(description="Run now", permissions=["change"])
    def run_now(self, request: HttpRequest, queryset: QuerySet[Message]) -> None:
        outcome = actions.run_now(actions.chosen(self, request, queryset), now(request), using=alias())
        outcome.tell(self, request, "made ready to run now")

    @admin.action(description="Postpone…", permissions=["change"])
    def postpone(self, request: HttpRequest, queryset: QuerySet[Message]) -> HttpResponse | None:
        form = PostponeForm(request.POST if "confirmed" in request.POST else None)
        if not form.is_valid():
            return self._ask(request, queryset, action="postpone", title="Postpone", form=form)
        delay = form.cleaned_data["delay"]
        outcome = actions.postpone(self._confirmed(request, queryset), DELAYS[delay], now(request), using=alias())
        outcome.tell(self, request, f"postponed until {delay} from now")
        return None

    @admin.action(description="Cancel…", permissions=["change"])
    def cancel(self, request: HttpRequest, queryset: QuerySet[Message]) -> HttpResponse | None:
        if "confirmed" not in request.POST:
            return self._ask(request, queryset, action="cancel", title="Cancel")
        outcome = actions.cancel(self._confirmed(request, queryset), now(request), using=alias())
        outcome.tell(self, request, "cancelled")
        return None

    def _ask(
        self,
        request: HttpRequest,
        queryset: QuerySet[Message],
        *,
        action: str,
        title: str,
        form: forms.Form | None = None,
    ) -> HttpResponse:
        ids = actions.chosen(self, request, queryset).ids
        moment = now(request)
        shown = Columns(moment, Service.at(moment, using=alias()))
        first = {message.pk: message for message in self.rows(request).filter(pk__in=ids[:LISTED])}
        context = {
            **self.admin_site.each_context(request),
            "title": f"{title} {actions.count(ids)}?",
            "action": action,
            "verb": title,
            "them": "it" if len(ids) == 1 else "them",
            "form": form,
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
            "back": request.get_full_path(),
        }
        return TemplateResponse(request, "admin/pgqueue/message/ask.html", context)

    def _confirmed(self, request: HttpRequest, queryset: QuerySet[Message]) -> Chosen:
        """The selected messages without those that came while somebody read the question."""
        newest = request.POST.get("newest", "")
        return actions.chosen(self, request, queryset.filter(pk__lte=int(newest)) if is_id(newest) else queryset)

    def get_fieldsets(self, request: HttpRequest, obj: Message | None = None) -> Any:  # noqa: ARG002
        return self.shown(request).fieldsets()

    def one(self, request: HttpRequest) -> QuerySet[Any]:
        found: QuerySet[Any] = (
            self.get_queryset(request)
            .only(*BRIEF, "unique_key", "last_error")
            .annotate(
                pretty_content=Pretty("content"),
                pretty_headers=Pretty("headers"),
                pretty_state=Pretty("state"),
                pretty_progress=Pretty("progress"),
                created=Moment("created_at"),
                locked=Moment("locked_at"),
                cancel_requested=Moment("cancel_requested_at"),
            )
        )
        return found

    def get_object(self, request: HttpRequest, object_id: str, from_field: str | None = None) -> Any:
        message = super().get_object(request, object_id, from_field)
        if message is not None:
            # Now, and not when the page is rendered, which is after the bounds of its queries have ended.
            message.__dict__["finished"] = finished_attempts(message) if may_see(request.user, "attempt") else []
        return message

    def shown(self, request: HttpRequest) -> Detail:
        def look() -> Detail:
            moment = now(request)
            return Detail(moment, Service.at(moment, using=alias()), user=request.user)

        detail: Detail = once(request, "shown", look)
        return detail

    def _get_obj_does_not_exist_redirect(self, request: HttpRequest, opts: Any, object_id: str) -> HttpResponse:
        """A message that has left the queue is not gone: its attempts are in the history."""
        if is_id(object_id) and may_see(request.user, "attempt"):
            self.message_user(
                request,
                f"Message {object_id} is not in the queue (any more). The history knows this of it:",
                messages.INFO,
            )
            return HttpResponseRedirect(attempts_url(int(object_id)))
        answer: HttpResponse = super()._get_obj_does_not_exist_redirect(request, opts, object_id)  # type: ignore[misc]
        return answer


def may_see(user: Any, model: str) -> bool:
    return any(user.has_perm(f"pgqueue.{may}_{model}") for may in ("view", "change"))


def attempts_url(message_id: int) -> str:
    return f"{reverse('admin:pgqueue_attempt_changelist')}?message_id={message_id}"


def finished_attempts(message: Message) -> list[dict[str, Any]]:
    """The newest finished attempts of a message, as its page shows them, and one more where there are more."""
    found = attempt.listed(Attempt.objects.using(alias()).filter(message_id=message.pk).order_by("-pk"))
    return [
        {
            "url": reverse("admin:pgqueue_attempt_change", args=[row.pk]),
            "number": row.attempt,
            "status": attempt.status(row),
            "finished": attempt.finished_at(row),
            "took": attempt.took(row),
            "worker": attempt.worker(row),
            "error": attempt.error(row),
        }
        for row in found[: ATTEMPTS_SHOWN + 1]
    ]


def paused(queue: str) -> Iterator[SafeString]:
    """Since when and by whom, if the queue is paused."""
    states = QueueState.objects.using(alias()).filter(pk=queue, paused_at__isnull=False)
    for since, by in states.values_list(Moment("paused_at"), "paused_by"):
        yield format_html("{} is paused since {} by {}.", queue, display.moment(since), by or "somebody")


def no_worker(message: Message) -> str:
    return (
        f"No worker that serves the queue “{message.queue}” has been seen in the last minute. "
        f"Start one: manage.py qworker --queues {message.queue}"
    )
