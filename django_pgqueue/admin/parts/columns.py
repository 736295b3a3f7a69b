"""Columns of the message list."""

from __future__ import annotations

from typing import TYPE_CHECKING

from django.contrib import admin
from django.utils.html import format_html
from django.utils.translation import gettext, gettext_lazy

from django_pgqueue.admin.parts import display
from django_pgqueue.admin.parts.content import progress_bar
from django_pgqueue.admin.parts.status import Status, status_of
from django_pgqueue.monitoring.waiting import NEVER_MS, NoWorker, sentence
from django_pgqueue.values import limits
from django_pgqueue.values.times import to_epoch_ms

if TYPE_CHECKING:
    import datetime as dt

    from django.utils.safestring import SafeString

    from django_pgqueue.admin.parts.content import ErrorTexts
    from django_pgqueue.models.tables import Message
    from django_pgqueue.monitoring.overview.coverage import Service

TONES = {Status.SCHEDULED: "blue", Status.READY: "green", Status.RUNNING: "amber", Status.EXPIRED: "red"}


def is_suspended(message: Message) -> bool:
    return message.unlock_at is None and message.suspended_attempt == message.attempt


class Columns:
    """The columns of a message at one moment, with the workers of that moment, for one user."""

    def __init__(self, now: dt.datetime, service: Service, errors: ErrorTexts) -> None:
        self.now = now
        self.service = service
        self.errors = errors

    @admin.display(description=gettext_lazy("task"))
    def task(self, message: Message) -> SafeString | str:
        return display.task(message.task)

    @admin.display(description=gettext_lazy("queue"))
    def queue(self, message: Message) -> SafeString | str:
        name = display.shortened(message.queue, 40)
        if not self.service.lacks(message):
            return name
        title = sentence(NoWorker(message.queue), self.now)
        return format_html(
            '{} <span class="pgqueue-label pgqueue-red" title="{}">{}</span>', name, title, gettext("no worker")
        )

    @admin.display(description=gettext_lazy("channel"))
    def channel(self, message: Message) -> SafeString | str:
        return display.shortened(message.channel, 40)

    @admin.display(description=gettext_lazy("status"))
    def status(self, message: Message) -> SafeString:
        status = status_of(message.dequeue_at, message.unlock_at, self.now)
        label = display.label(display.status(status), TONES[status])
        bar = progress_bar(message.task, getattr(message, "report", None), sees=self.errors.sees)
        if bar:
            return format_html("{}{}", label, bar)
        if message.parked_at is not None:
            why = (gettext("later version"), "blue") if message.unknown_since is None else (gettext("parked"), "red")
            return format_html("{} {}", label, display.label(*why))
        if message.after_policy is not None:
            return format_html("{} {}", label, display.label(gettext("waits for others"), "grey"))
        if is_suspended(message) and status is Status.SCHEDULED:
            return format_html("{} {}", label, display.label(gettext("suspended"), "grey"))
        return (
            label
            if message.alone_at is None
            else format_html("{} {}", label, display.label(gettext("quarantined"), "red"))
        )

    @admin.display(description=gettext_lazy("dequeue at"))
    def dequeue_at(self, message: Message) -> SafeString | str:
        if message.after_policy is not None:
            return display.quiet(gettext("when the others have ended"))
        if is_suspended(message) and to_epoch_ms(message.dequeue_at) == NEVER_MS:
            return display.quiet(gettext("when its event has come"))
        due = message.dequeue_at if message.alone_at is None else message.alone_at
        if message.parked_at is not None:
            due = message.unknown_since or message.parked_at
        far = display.relative(due, self.now)
        return format_html("{}{}", display.moment(due), display.line(far) if far else "")

    @admin.display(description=gettext_lazy("attempt"))
    def attempts(self, message: Message) -> str:
        shown = display.attempt(message.attempt, message.max_attempts)
        lost = display.attempt(message.lost, message.max_lost or limits.DEFAULT_MAX_LOST)
        return (
            gettext("{attempt}, {lost} lost").format(attempt=shown, lost=lost)
            if message.lost or message.max_lost is not None
            else shown
        )

    @admin.display(description=gettext_lazy("worker"))
    def worker(self, message: Message) -> SafeString | str:
        return display.shortened(message.worker, 24)

    @admin.display(description=gettext_lazy("last error"))
    def error(self, message: Message) -> SafeString | str:
        return display.sentence(self.errors.line(message.task, getattr(message, "error", None), 80))

    @admin.display(description=gettext_lazy("created at"))
    def created_at(self, message: Message) -> SafeString | str:
        return display.moment(getattr(message, "created", None))
