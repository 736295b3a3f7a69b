"""The names of models and fields for people, and the words for statuses.

A field that has its translated name from its declaration would change the migrations.  So each gets it afterwards.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from django.db.models.signals import class_prepared
from django.utils.translation import gettext_lazy

if TYPE_CHECKING:
    from django.db.models import Model

MODELS = {
    "Attempt": (gettext_lazy("finished attempt"), gettext_lazy("finished attempts")),
    "Binding": (gettext_lazy("binding"), gettext_lazy("bindings")),
    "Channel": (gettext_lazy("channel"), gettext_lazy("channels")),
    "Edit": (gettext_lazy("edit"), gettext_lazy("edits")),
    "Event": (gettext_lazy("event"), gettext_lazy("events")),
    "Exchange": (gettext_lazy("exchange"), gettext_lazy("exchanges")),
    "Message": (gettext_lazy("message"), gettext_lazy("messages")),
    "Overview": (gettext_lazy("overview"), gettext_lazy("overview")),
    "QueueState": (gettext_lazy("queue"), gettext_lazy("queues")),
    "ReportHour": (gettext_lazy("insight"), gettext_lazy("insights")),
    "Schedule": (gettext_lazy("schedule"), gettext_lazy("schedules")),
    "Worker": (gettext_lazy("worker"), gettext_lazy("workers")),
}
"""Those that the admin shows: one, and many."""

FIELDS = {
    "args": gettext_lazy("args"),
    "attempt": gettext_lazy("attempt"),
    "catch_up": gettext_lazy("catch up"),
    "channel": gettext_lazy("channel"),
    "content": gettext_lazy("content"),
    "created_at": gettext_lazy("created at"),
    "cron": gettext_lazy("cron"),
    "dequeue_at": gettext_lazy("dequeue at"),
    "error_class": gettext_lazy("error class"),
    "exchange": gettext_lazy("exchange"),
    "final": gettext_lazy("final"),
    "finished_at": gettext_lazy("finished at"),
    "headers": gettext_lazy("headers"),
    "hostname": gettext_lazy("hostname"),
    "hour": gettext_lazy("hour"),
    "id": gettext_lazy("id"),
    "kind": gettext_lazy("kind"),
    "max_attempts": gettext_lazy("max attempts"),
    "max_concurrency": gettext_lazy("max concurrency"),
    "max_size": gettext_lazy("max size"),
    "message_id": gettext_lazy("message"),
    "name": gettext_lazy("name"),
    "pattern": gettext_lazy("pattern"),
    "pid": gettext_lazy("pid"),
    "priority": gettext_lazy("priority"),
    "problem": gettext_lazy("problem"),
    "queue": gettext_lazy("queue"),
    "slots": gettext_lazy("slots"),
    "started_at": gettext_lazy("started at"),
    "status": gettext_lazy("status"),
    "task": gettext_lazy("task"),
    "timezone": gettext_lazy("timezone"),
    "version": gettext_lazy("version"),
    "worker": gettext_lazy("worker"),
}

STATUSES = {
    "scheduled": gettext_lazy("scheduled"),
    "ready": gettext_lazy("ready"),
    "running": gettext_lazy("running"),
    "expired": gettext_lazy("expired"),
    "succeeded": gettext_lazy("succeeded"),
    "deferred": gettext_lazy("deferred"),
    "retried": gettext_lazy("retried"),
    "failed": gettext_lazy("failed"),
    "cancelled": gettext_lazy("cancelled"),
    "lost": gettext_lazy("lost"),
    "suspended": gettext_lazy("suspended"),
}
"""Of messages and of attempts."""


def name(sender: type[Model], **_: object) -> None:
    """Gives a model and its fields the names that the admin shows, as soon as Django has made the class."""
    if not sender.__module__.startswith("django_pgqueue.models"):
        return
    options = sender._meta  # noqa: SLF001 -- Django's own way
    if sender.__name__ in MODELS:
        options.verbose_name, options.verbose_name_plural = MODELS[sender.__name__]
    for field in options.fields:
        if field.name in FIELDS:
            field.verbose_name = FIELDS[field.name]


class_prepared.connect(name)
