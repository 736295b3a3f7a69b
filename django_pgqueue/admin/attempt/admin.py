"""The history: attempts that have ended."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar

from django.contrib import admin, messages
from django.contrib.admin.helpers import ACTION_CHECKBOX_NAME
from django.core.exceptions import PermissionDenied
from django.db import DatabaseError, connections, transaction
from django.db.models import Q
from django.http import HttpResponseRedirect
from django.urls import path, reverse
from django.utils.decorators import method_decorator
from django.utils.html import format_html, format_html_join
from django.utils.translation import gettext, gettext_lazy, ngettext
from django.views.decorators.http import require_POST

from django_pgqueue import control, functions
from django_pgqueue.admin.dashboards import errors as errors_page
from django_pgqueue.admin.edit import ask_page
from django_pgqueue.admin.parts import actions, audit_log, database, display, filters, timeline
from django_pgqueue.admin.parts.change_list import CappedChangeList
from django_pgqueue.admin.parts.content import ErrorTexts, ShownContent, sensitivity
from django_pgqueue.admin.parts.database import alias, link, may_see, url
from django_pgqueue.admin.parts.expressions import Short, duration
from django_pgqueue.admin.parts.read_only import ReadOnlyAdmin, is_id, may_see_content
from django_pgqueue.admin.parts.refusal import reason
from django_pgqueue.backend.lookup import version_of
from django_pgqueue.exceptions import InvalidStep
from django_pgqueue.models.tables import Attempt
from django_pgqueue.monitoring.overview.clamped import Moment
from django_pgqueue.values.times import OUT_OF_REACH_MS, aware, local, to_epoch_ms

if TYPE_CHECKING:
    import datetime as dt

    from django.db.models import QuerySet
    from django.http import HttpRequest, HttpResponse
    from django.utils.safestring import SafeString

Status = Attempt.Status
TONES: dict[str, str] = {
    Status.SUCCEEDED: "green",
    Status.DEFERRED: "blue",
    Status.RETRIED: "amber",
    Status.FAILED: "red",
    Status.CANCELLED: "grey",
    Status.LOST: "red",
    Status.SUSPENDED: "blue",
}
SAID = ("content", "headers", "result")
TIMES = {"created": "created_at", "started": "started_at", "finished": "finished_at"}
# Columns that every page about attempts fetches unchanged; see message.BRIEF.
BRIEF = (
    "id",
    "message_id",
    "dequeue_at",
    "attempt",
    "max_attempts",
    "priority",
    "final",
    "status",
    "queue",
    "channel",
    "task",
    "worker",
    "error_class",
)


class HistoryChangeList(CappedChangeList):
    """Searches all of the history only with filters that an index supports.

    Statuses, tasks and the like have no index: rows are appended all day long, and every job would pay for each index.
    Without a range of time such filters search the newest rows, and a note on the page says so.
    """

    WINDOW = 200_000
    INDEXED = ("message_id", "finished_at__range__", "id", "pk")

    def get_queryset(self, request: HttpRequest, exclude_parameters: list[str | None] | None = None) -> QuerySet[Any]:
        found = super().get_queryset(request, exclude_parameters)
        self.window_notes: list[str] = []
        newest = self.root_queryset.order_by("-pk").values_list("pk", flat=True).first() if self._scans() else None
        if newest is None:
            return found
        oldest = self._oldest_looked_at(newest)
        if oldest is not None:
            self.window_notes.append(
                gettext(
                    "The list searched the newest {count} attempts, back to {oldest}. Choose a range of “finished at” "
                    "to search others."
                ).format(count=display.number(self.WINDOW), oldest=f"{local(oldest):%Y-%m-%d %H:%M}")
            )
        self.notes += self.window_notes
        return found.filter(pk__gt=newest - self.WINDOW)

    def _scans(self) -> bool:
        if self.query:
            return not is_id(self.query.strip())
        used = [name for name, values in self.get_filters_params().items() if any(values)]
        return bool(used) and not any(name.startswith(self.INDEXED) for name in used)

    def _oldest_looked_at(self, newest: int) -> dt.datetime | None:
        """Returns when the last attempt before the window ended; None if the window holds all attempts."""
        before = self.root_queryset.order_by("-pk").filter(pk__lte=newest - self.WINDOW)
        return before.values_list(Moment("finished_at"), flat=True).first()


@admin.display(description=gettext_lazy("message"))
def message_link(attempt: Attempt) -> SafeString:
    return link("message_change", str(attempt.message_id), attempt.message_id)


@admin.display(description=gettext_lazy("task"))
def task(attempt: Attempt) -> SafeString | str:
    return display.task(attempt.task)


@admin.display(description=gettext_lazy("queue"))
def queue(attempt: Attempt) -> SafeString | str:
    return display.shortened(attempt.queue, 40)


@admin.display(description=gettext_lazy("channel"))
def channel(attempt: Attempt) -> SafeString | str:
    return display.shortened(attempt.channel, 40)


@admin.display(description=gettext_lazy("status"))
def status(attempt: Attempt) -> SafeString:
    return display.label(display.status(attempt.status), TONES.get(attempt.status, "grey"))


@admin.display(description=gettext_lazy("attempt"))
def number(attempt: Attempt) -> str:
    return display.attempt(attempt.attempt, attempt.max_attempts)


@admin.display(description=gettext_lazy("due at"))
def dequeue_at(attempt: Attempt) -> SafeString | str:
    # A message that waited for others when it was cancelled never had a time.
    is_of_others = to_epoch_ms(attempt.dequeue_at) == OUT_OF_REACH_MS
    return display.quiet(gettext("it waited for others")) if is_of_others else display.moment(attempt.dequeue_at)


@admin.display(description=gettext_lazy("created at"))
def created_at(attempt: Attempt) -> SafeString | str:
    return display.moment(getattr(attempt, "created", None))


@admin.display(description=gettext_lazy("started at"))
def started_at(attempt: Attempt) -> SafeString | str:
    return display.moment(getattr(attempt, "started", None))


@admin.display(description=gettext_lazy("finished at"))
def finished_at(attempt: Attempt) -> SafeString | str:
    return display.moment(getattr(attempt, "finished", None))


@admin.display(description=gettext_lazy("took"))
def took(attempt: Attempt) -> str:
    return display.span(getattr(attempt, "took", None))


@admin.display(description=gettext_lazy("waited"))
def waited(attempt: Attempt) -> str:
    """Returns the time from when the attempt could start, not before its message existed, until it did."""
    started = getattr(attempt, "started", None)
    if started is None:
        return display.NOTHING
    return display.span(aware(started) - max(attempt.dequeue_at, aware(getattr(attempt, "created", started))))


@admin.display(description=gettext_lazy("worker"))
def worker(attempt: Attempt) -> SafeString | str:
    return display.shortened(attempt.worker, 24)


class ErrorColumns:
    """The error columns, as far as one user may read them."""

    def __init__(self, texts: ErrorTexts) -> None:
        self.texts = texts

    @admin.display(description=gettext_lazy("error"))
    def error(self, attempt: Attempt) -> SafeString | str:
        message = self.texts.line(attempt.task, getattr(attempt, "error", None), 80)
        if attempt.error_class is None:
            return display.sentence(message)
        name = display.shortened(attempt.error_class.rpartition(".")[2], 60)
        return display.sentence(format_html('<span title="{}">{}: {}</span>', attempt.error_class, name, message))

    @admin.display(description=gettext_lazy("error"))
    def whole_error(self, attempt: Attempt) -> SafeString | str:
        if attempt.error_class is None and attempt.error_message is None:
            return display.NOTHING
        if self.texts.hides(attempt.task):
            return format_html("{}: {}", attempt.error_class or gettext("error"), display.hidden())
        return display.block(f"{attempt.error_class or gettext('error')}: {attempt.error_message or ''}")

    @admin.display(description=gettext_lazy("traceback"))
    def traceback(self, attempt: Attempt) -> SafeString | str:
        return self.texts.block(attempt.task, attempt.traceback)


@admin.display(description=gettext_lazy("content"))
def content(attempt: Attempt) -> SafeString | str:
    return shown_content(attempt).block("content")


@admin.display(description=gettext_lazy("headers"))
def headers(attempt: Attempt) -> SafeString | str:
    return shown_content(attempt).block("headers")


@admin.display(description=gettext_lazy("result"))
def result(attempt: Attempt) -> SafeString | str:
    return shown_content(attempt).block("result")


@admin.display(description=gettext_lazy("steps of the message"))
def steps(attempt: Attempt) -> SafeString:
    return timeline.drawn(attempt.__dict__["steps"], attempt.__dict__.get("again"))


@admin.display(description=gettext_lazy("unique key"))
def unique_key(attempt: Attempt) -> SafeString | str:
    return shown_content(attempt).short(attempt.unique_key)


def shown_content(attempt: Attempt) -> ShownContent:
    known: ShownContent = attempt.__dict__["shown_content"]
    return known


def listed(attempts: QuerySet[Attempt]) -> QuerySet[Attempt]:
    """Fetches the columns that a line about an attempt shows, and no large ones."""
    return attempts.only(*BRIEF).annotate(
        error=Short("error_message"), took=duration(), **{name: Moment(column) for name, column in TIMES.items()}
    )


@admin.register(Attempt)
class AttemptAdmin(ReadOnlyAdmin):
    change_list_template = "admin/django_pgqueue/attempt/change_list.html"
    list_filter = (
        ("finished_at", filters.MomentRangeFilter),
        "status",
        "final",
        ("started_at", filters.DurationFilter),
        ("dequeue_at", filters.WaitFilter),
        filters.ErrorFilter,
        filters.ErrorGroupFilter,
        filters.QueueFilter,
        filters.TaskFilter,
        filters.ChannelFilter,
        filters.ArgumentFilter,
    )
    default_columns: ClassVar[tuple[str, ...]] = (
        "id", "message_link", "status", "task", "error", "queue", "finished_at", "took",
    )  # fmt: skip
    linked_by = ("message_id",)
    search_fields = ("id", "message_id", "task")
    search_help_text = gettext_lazy("The id of a message or of an attempt, or a part of a task's name.")
    actions = ("enqueue_again",)
    enqueues = True
    change_form_template = "admin/django_pgqueue/message/change_form.html"

    def get_urls(self) -> list[Any]:
        def shown(view: Any) -> Any:
            return self.admin_site.admin_view(lambda request: view(self, request))

        own = [
            path("errors/", shown(errors_page.view), name="django_pgqueue_attempt_errors"),
            path("edit/", shown(ask_page.view), name="django_pgqueue_attempt_edit"),
            path(
                "<int:message_id>/from-step/",
                self.admin_site.admin_view(self.from_step_view),
                name="django_pgqueue_attempt_from_step",
            ),
        ]
        return [*own, *super().get_urls()]

    def columns(self, request: HttpRequest) -> tuple[Any, ...]:
        error = ErrorColumns(ErrorTexts.of(request)).error
        return (
            "id", message_link, status, task, error, queue, number,
            finished_at, took, waited, started_at, worker, channel,
        )  # fmt: skip

    def changelist_view(self, request: HttpRequest, extra_context: dict[str, Any] | None = None) -> HttpResponse:
        errors = reverse("admin:django_pgqueue_attempt_errors", current_app=self.admin_site.name)
        links = {
            "errors_url": errors + database.same(request),
            "edit_url": ask_page.url_of(self, request),
        }
        return super().changelist_view(request, {**links, **(extra_context or {})})

    def get_changelist(self, request: HttpRequest, **kwargs: Any) -> type[CappedChangeList]:  # noqa: ARG002
        return HistoryChangeList

    def get_fieldsets(self, request: HttpRequest, obj: Attempt | None = None) -> Any:
        errors = ErrorColumns(ErrorTexts.of(request))
        durable = [(gettext("Steps"), {"fields": [steps]})] if obj is not None and obj.__dict__.get("steps") else []
        return [
            (None, {"fields": [message_link, status, "final", task, queue, channel, "priority", number, worker]}),
            (gettext("Times"), {"fields": [created_at, dequeue_at, started_at, finished_at, waited, took]}),
            (gettext("Outcome"), {"fields": [errors.whole_error, errors.traceback, result]}),
            *durable,
            (gettext("Content"), {"fields": [content, headers, unique_key]}),
        ]

    def rows(self, request: HttpRequest) -> QuerySet[Attempt]:
        return listed(self.get_queryset(request))

    def one(self, request: HttpRequest) -> QuerySet[Any]:
        found: QuerySet[Any] = (
            self.get_queryset(request)
            .only(*BRIEF, "unique_key", "error_message", "traceback")
            .annotate(took=duration(), **{name: Moment(column) for name, column in TIMES.items()})
        )
        return found

    def get_object(self, request: HttpRequest, object_id: str, from_field: str | None = None) -> Any:
        attempt = super().get_object(request, object_id, from_field)
        if attempt is not None:
            sees = may_see_content(request)
            attempt.__dict__["shown_content"] = ShownContent(attempt, attempt.task, SAID, sees=sees)
            recorded = timeline.recorded_steps(attempt.message_id, sees=sees and not sensitivity(attempt.task))
            attempt.__dict__["steps"] = recorded
            if attempt.final and self.has_run_permission(request):
                again = reverse(
                    "admin:django_pgqueue_attempt_from_step",
                    args=[attempt.message_id],
                    current_app=self.admin_site.name,
                )
                attempt.__dict__["again"] = again + database.same(request)
        return attempt

    def render_change_form(self, request: HttpRequest, context: Any, *args: Any, **kwargs: Any) -> Any:
        ended = context["original"].final and self.has_run_permission(request)
        context |= {
            "buttons": [{"action": "enqueue_again", "words": gettext("Enqueue again")}] if ended else [],
            "checkbox": ACTION_CHECKBOX_NAME,
            "list_url": self.list_url(),
            "seen": audit_log.newest() if ended else None,
        }
        return super().render_change_form(request, context, *args, **kwargs)

    def matching(self, term: str) -> Q:
        return super().matching(term) | Q(message_id=int(term)) if is_id(term) else super().matching(term)

    @admin.action(description=gettext_lazy("Enqueue again"), permissions=["run"])
    def enqueue_again(self, request: HttpRequest, queryset: QuerySet[Attempt]) -> HttpResponse | None:
        """Enqueues ended messages again.  It skips attempts that were not the last of their message."""
        selected = actions.chosen(self, request, queryset)
        there = self.get_queryset(request)
        ended = there.filter(pk__in=selected.ids, final=True, content__isnull=False)
        done_before = actions.done_since_shown(request, Attempt)
        final = sorted(ended.values_list("pk", flat=True))
        ids = [pk for pk in final if str(pk) not in done_before]
        try:
            with transaction.atomic(using=alias()):
                made = [
                    new
                    for batch in actions.batches(ids)
                    for new in functions.attempt_enqueue(connections[alias()], batch, version=version_of(alias()))
                ]
        except DatabaseError as error:
            # Only the part of PostgreSQL's message that does not quote the row.
            text = gettext("Nothing was enqueued again: {reason}").format(reason=reason(error))
            self.message_user(request, text, messages.ERROR)
            return self.back(request)
        if made:
            self.message_user(request, said_of_new(made), messages.SUCCESS)
            audit_log.written(request, Attempt, ids, gettext("Enqueued again."))
        if len(ids) < len(final):
            again = actions.listed([pk for pk in final if str(pk) in done_before])
            self.message_user(request, actions.not_twice(again), messages.WARNING)
        self._tell_passed(request, sorted({*selected.ids, *selected.gone} - set(final)))
        if len(selected.ids) >= actions.MOST:
            self.message_user(request, actions.only_first(), messages.WARNING)
        return self.back(request)

    @method_decorator(require_POST)
    def from_step_view(self, request: HttpRequest, message_id: int) -> HttpResponse:
        """Enqueues an ended message of a durable task again from a step: the button in its timeline."""
        return self.answered(request, lambda: self._from_step(request, message_id))

    def _from_step(self, request: HttpRequest, message_id: int) -> HttpResponse:
        if not (self.has_run_permission(request) and self.has_view_permission(request)):
            raise PermissionDenied
        step = request.POST.get("step", "")
        ended = self.get_queryset(request).filter(message_id=message_id, final=True).order_by("-pk")
        last = list(ended.values_list("pk", flat=True)[:1])
        if {*map(str, last)} & actions.done_since_shown(request, Attempt):
            self.message_user(request, actions.not_twice(actions.listed(last)), messages.WARNING)
            return HttpResponseRedirect(url("attempt_changelist", message_id=message_id))
        try:
            new = control.run_from_step(message_id, step, database=alias())
        except InvalidStep as error:
            self.message_user(request, str(error), messages.ERROR)
            return HttpResponseRedirect(url("attempt_changelist", message_id=message_id))
        audit_log.written(request, Attempt, last, gettext("Run again from the step {step}.").format(step=step))
        words = gettext("Message {new} runs message {old} again from {step}.")
        self.message_user(request, words.format(new=new, old=message_id, step=step), messages.SUCCESS)
        is_shown = may_see(request.user, "message")
        return HttpResponseRedirect(
            url("message_change", new) if is_shown else url("attempt_changelist", message_id=message_id)
        )

    def _tell_passed(self, request: HttpRequest, passed: list[int]) -> None:
        if passed:
            text = ngettext(
                "{count} not enqueued again, because it is not the last attempt of its message: the queue still has "
                "the message, or it has a later attempt ({ids}).",
                "{count} not enqueued again, because they are not the last attempt of their message: the queue still "
                "has the message, or it has a later attempt ({ids}).",
                len(passed),
            )
            text = text.format(count=display.number(len(passed)), ids=actions.listed(passed))
            self.message_user(request, text, messages.WARNING)


def said_of_new(made: list[int]) -> SafeString:
    """Returns their number, with links to the first of them."""
    links = format_html_join(", ", "{}", ((link("message_change", str(pk), pk),) for pk in made[: actions.NAMED]))
    more = ", …" if len(made) > actions.NAMED else ""
    ids = format_html("{}{}", links, more)
    return format_html(gettext("{messages} enqueued again: {ids}"), messages=actions.count(made), ids=ids)
