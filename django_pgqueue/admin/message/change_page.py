"""The page of one message."""

from __future__ import annotations

import datetime as dt
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from django import forms
from django.contrib import admin
from django.contrib.admin.widgets import AdminTextInputWidget
from django.db.models import F
from django.template.loader import render_to_string
from django.utils.html import format_html, format_html_join
from django.utils.translation import gettext, gettext_lazy

from django_pgqueue.admin.attempt import admin as attempt
from django_pgqueue.admin.message import emitted
from django_pgqueue.admin.message.related import Related
from django_pgqueue.admin.parts import display, timeline
from django_pgqueue.admin.parts.actions import Standing
from django_pgqueue.admin.parts.columns import Columns
from django_pgqueue.admin.parts.content import ShownContent, sensitivity
from django_pgqueue.admin.parts.database import alias, url
from django_pgqueue.admin.parts.expressions import Short
from django_pgqueue.admin.parts.status import Status, status_of
from django_pgqueue.models.fields import EpochFormField
from django_pgqueue.models.tables import Attempt, Message
from django_pgqueue.monitoring import waiting
from django_pgqueue.values.times import to_epoch_ms

if TYPE_CHECKING:
    from django.utils.safestring import SafeString

    from django_pgqueue.admin.parts.content import ErrorTexts
    from django_pgqueue.monitoring.overview.coverage import Service

ATTEMPTS_SHOWN = 50
TRACEBACK_LENGTH = 20_000
SAID = ("content", "headers", "state", "progress")


class MessageForm(forms.ModelForm):  # type: ignore[type-arg]
    """The fields of a waiting message that can be changed."""

    dequeue_at = EpochFormField(
        label=gettext_lazy("Dequeue at"),
        widget=AdminTextInputWidget(attrs={"size": 24}),
        help_text=gettext_lazy(
            "Not before this time, such as 2026-11-20 13:50:00. With a time in the past, the message is ready "
            "at once, before messages with later times."
        ),
    )
    priority = forms.IntegerField(
        label=gettext_lazy("Priority"),
        min_value=-100,
        max_value=100,
        help_text=gettext_lazy("From -100 to 100. Higher priorities run first."),
    )

    class Meta:
        model = Message
        fields = ("dequeue_at", "priority")

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        if self.instance.alone_at is not None:  # quarantined: its dequeue_at is out of reach
            self.initial["dequeue_at"] = self.instance.alone_at


@dataclass(frozen=True, slots=True, kw_only=True)
class Found:
    """The data of the page from outside of the message's row."""

    reasons: list[SafeString] = field(default_factory=list)
    related: Related
    attempts: list[dict[str, Any]] | None
    """None: this user may not see the history."""


class Detail(Columns):
    """The fields of the page, at one moment and for one user."""

    def __init__(
        self, now: dt.datetime, service: Service, errors: ErrorTexts, *, sees_content: bool, sees_history: bool
    ) -> None:
        super().__init__(now, service, errors)
        self.sees_content = sees_content
        self.sees_history = sees_history

    def found(self, message: Message) -> Found:
        """Queries once per message: the page may be made of a submitted form."""
        known: Found | None = message.__dict__.get("found")
        if known is None:
            known = message.__dict__["found"] = Found(
                reasons=reasons(message, self.now, self.service),
                related=Related.of(message, self.now, history=self.sees_history),
                attempts=finished_attempts(message, self.errors) if self.sees_history else None,
            )
        return known

    def fieldsets(
        self, *, editable: bool, waits: bool, timed: bool, durable: bool
    ) -> list[tuple[str | None, dict[str, Any]]]:
        """``timed``: the message waits for a time, if for anything; only then can the time be changed."""
        whys = [self.why] if waits else []
        when = ["dequeue_at" if editable and timed else self.dequeue_at, "priority"]
        return [
            (
                None,
                {"fields": [self.status, *whys, self.task, "queue", "channel", *when, self.created_at, self.version]},
            ),
            (
                gettext("Attempts"),
                {"fields": [self.attempts, self.lock, self.progress, self.last_error, self.finished]},
            ),
            *([(gettext("Steps"), {"fields": [self.steps]})] if durable else []),
            (gettext("Related"), {"fields": [self.related, self.unique_key]}),
            (gettext("Content"), {"fields": [self.content, self.headers, self.state]}),
        ]

    def readonly(self, *, editable: bool, waits: bool, timed: bool, durable: bool) -> list[Any]:
        shown = [
            name
            for _, options in self.fieldsets(editable=editable, waits=waits, timed=timed, durable=durable)
            for name in options["fields"]
            if not (editable and name in {"dequeue_at", "priority"})
        ]
        return shown if timed else [*shown, "dequeue_at"]

    @admin.display(description=gettext_lazy("waits because"))
    def why(self, message: Message) -> SafeString | str:
        listed = format_html_join("", "<li>{}</li>", ((reason,) for reason in self.found(message).reasons))
        return format_html('<ul class="pgqueue-reasons">{}</ul>', listed)

    def is_durable(self, message: Message) -> bool:
        """Queries once per message whether there are steps."""
        return bool(self._steps(message))

    def _steps(self, message: Message) -> list[dict[str, Any]]:
        known: list[dict[str, Any]] | None = message.__dict__.get("steps")
        if known is None:
            sees = self.sees_content and not sensitivity(message.task)
            known = message.__dict__["steps"] = timeline.recorded_steps(message.pk, sees=sees)
        return known

    @admin.display(description=gettext_lazy("steps"))
    def steps(self, message: Message) -> SafeString | str:
        return timeline.drawn(self._steps(message))

    @admin.display(description=gettext_lazy("version"))
    def version(self, message: Message) -> SafeString | str:
        return display.shortened(message.version, 100)

    @admin.display(description=gettext_lazy("lock"))
    def lock(self, message: Message) -> SafeString | str:
        if message.unlock_at is None:
            return display.NOTHING
        asked = getattr(message, "cancel_requested", None)
        return format_html(
            gettext("held by {worker} since {since}, until {until}{asked}"),
            worker=message.worker,
            since=display.moment(getattr(message, "locked", None)),
            until=display.moment(message.unlock_at),
            asked=format_html(gettext("; asked to stop at {time}"), time=display.moment(asked)) if asked else "",
        )

    @admin.display(description=gettext_lazy("last error"))
    def last_error(self, message: Message) -> SafeString | str:
        return self.errors.block(message.task, message.last_error)

    @admin.display(description=gettext_lazy("finished attempts"))
    def finished(self, message: Message) -> SafeString | str:
        attempts = self.found(message).attempts
        if attempts is None:
            return display.quiet(gettext("You have no permission to see the history."))
        if not attempts:
            return gettext("none")
        context = {
            "attempts": attempts[:ATTEMPTS_SHOWN],
            "more": len(attempts) > ATTEMPTS_SHOWN,
            "url": url("attempt_changelist", message_id=message.pk),
        }
        return render_to_string("admin/django_pgqueue/message/attempts.html", context)

    @admin.display(description=gettext_lazy("other messages"))
    def related(self, message: Message) -> SafeString | str:
        lines = [("", f"{what} ", links) for what, links in self.found(message).related.lines()]
        if not lines:
            return gettext("none")
        return format_html('<ul class="pgqueue-runs">{}</ul>', format_html_join("", "<li>{}{}{}</li>", lines))

    @admin.display(description=gettext_lazy("progress"))
    def progress(self, message: Message) -> SafeString | str:
        return self._said(message).progress()

    @admin.display(description=gettext_lazy("content"))
    def content(self, message: Message) -> SafeString | str:
        return self._said(message).block("content")

    @admin.display(description=gettext_lazy("headers"))
    def headers(self, message: Message) -> SafeString | str:
        return self._said(message).block("headers")

    @admin.display(description=gettext_lazy("state"))
    def state(self, message: Message) -> SafeString | str:
        return self._said(message).block("state")

    @admin.display(description=gettext_lazy("unique key"))
    def unique_key(self, message: Message) -> SafeString | str:
        return self._said(message).short(message.unique_key)

    def _said(self, message: Message) -> ShownContent:
        known: ShownContent | None = message.__dict__.get("shown")
        if known is None:
            known = message.__dict__["shown"] = ShownContent(message, message.task, SAID, sees=self.sees_content)
        return known


def reasons(message: Message, now: dt.datetime, service: Service) -> list[SafeString]:
    """Returns why a message does not run, in sentences with links, and times in the current time zone."""
    found = waiting.reasons([message], now, service, using=alias())[message.pk]
    if status_of(message.dequeue_at, message.unlock_at, now) is Status.READY:
        found.append(waiting.behind(message, now, using=alias()))
    return [format_html(words, *map(_shown, values)) for words, *values in (reason.words(now) for reason in found)]


def _shown(value: Any) -> Any:
    match value:
        case dt.datetime():
            return display.moment(value)
        case list():
            return format_html_join(", ", '<a href="{}">{}</a>', ((url("message_change", pk), pk) for pk in value))
    return value


def finished_attempts(message: Message, errors: ErrorTexts) -> list[dict[str, Any]]:
    """Returns the newest finished attempts of a message: one more than are shown, if there are more."""
    # Ordered by a sum, which no index has: by the id alone, the scan may go through all of the history.
    newest = Attempt.objects.using(alias()).filter(message_id=message.pk).order_by((F("id") + 0).desc())
    rows = attempt.listed(newest).annotate(trace=Short("traceback", length=TRACEBACK_LENGTH))
    return [
        {
            "url": url("attempt_change", row.pk),
            "number": row.attempt,
            "tone": attempt.TONES.get(row.status, "grey"),
            "status": attempt.status(row),
            "finished": attempt.finished_at(row),
            "took": attempt.took(row),
            "waited": attempt.waited(row),
            "worker": attempt.worker(row),
            "error": attempt.ErrorColumns(errors).error(row),
            "traceback": None if errors.hides(row.task) else getattr(row, "trace", None),
        }
        for row in rows[: ATTEMPTS_SHOWN + 1]
    ]


def buttons(message: Message, now: dt.datetime, allowed: set[str]) -> list[dict[str, str]]:
    """Returns the actions that the status and the permissions allow."""
    standing = Standing.of(message, now)
    offered = {
        Status.SCHEDULED: ("run_now", "postpone", "cancel"),
        Status.READY: ("postpone", "cancel"),
        Status.RUNNING: ("cancel",),
        Status.EXPIRED: ("cancel",),
    }[standing.status]
    offered += ("emit",) if emitted.by(message) else ()
    useless = set()
    if standing.awaits or standing.is_parked:
        useless.add("postpone")
    if standing.is_quarantined and standing.due_ms <= to_epoch_ms(now):
        useless.add("run_now")
    words = {
        "run_now": gettext("Run now…") if standing.awaits else gettext("Run now"),
        "postpone": gettext("Postpone…"),
        "emit": gettext("Emit its event…"),
        "cancel": gettext("Ask to stop…") if standing.status is Status.RUNNING else gettext("Cancel…"),
    }
    return [{"action": action, "words": words[action]} for action in offered if action in allowed - useless]
