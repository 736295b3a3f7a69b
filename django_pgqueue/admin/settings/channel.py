"""Channels: limits, running and waiting messages."""

from __future__ import annotations

import datetime as dt
from typing import TYPE_CHECKING, Any

from django import forms
from django.contrib import admin, messages
from django.contrib.admin.widgets import AdminIntegerFieldWidget, AdminTextInputWidget
from django.core.exceptions import ValidationError
from django.db.models import Func, IntegerField, Q
from django.utils.translation import gettext, gettext_lazy

from django_pgqueue import control
from django_pgqueue.admin.parts import actions, audit_log, display
from django_pgqueue.admin.parts.database import alias, link
from django_pgqueue.admin.parts.read_only import ReadOnlyAdmin
from django_pgqueue.admin.settings.task_form import NamedForm
from django_pgqueue.models.fields import EpochField
from django_pgqueue.models.tables import Channel
from django_pgqueue.values.limits import MAX_NAME_BYTES
from django_pgqueue.values.names import NAMES_ARE, is_name

if TYPE_CHECKING:
    from django.db.models import Model, QuerySet
    from django.http import HttpRequest
    from django.utils.safestring import SafeString

MAX_COUNTED = 1000


class EndedOfChannel(Func):
    """Attempts that have ended and are still counted as running."""

    template = """(
        select coalesce(sum(e.ended), 0)::integer
        from (select a.ended from pgqueue_arrival a where a.channel = %(expressions)s limit 1000) e)"""
    output_field = IntegerField()


class Waiting(Func):
    """Waiting messages, counted up to MAX_COUNTED and one more."""

    template = """(
        select count(*)
        from (select from pgqueue_message m where m.channel = %(expressions)s and m.unlock_at is null limit 1001) w)"""
    output_field = IntegerField()


class ChannelForm(NamedForm):
    name = forms.CharField(widget=AdminTextInputWidget, max_length=MAX_NAME_BYTES, label=gettext_lazy("Channel"))
    max_concurrency = forms.IntegerField(
        required=False,
        min_value=0,
        max_value=control.MAX_LIMIT,
        widget=AdminIntegerFieldWidget,
        help_text=gettext_lazy(
            "Maximum number of messages that run at a time, in all queues together. Empty: no limit. 0: none."
        ),
    )
    max_size = forms.IntegerField(
        required=False,
        min_value=0,
        max_value=control.MAX_LIMIT,
        widget=AdminIntegerFieldWidget,
        help_text=gettext_lazy("Maximum number of waiting messages. Further enqueues are refused. Empty: no limit."),
    )
    release_interval_ms = forms.IntegerField(
        required=False,
        min_value=0,
        max_value=control.MAX_LIMIT,
        label=gettext_lazy("Release interval"),
        widget=AdminIntegerFieldWidget,
        help_text=gettext_lazy("Milliseconds between the starts of two messages. Empty: none."),
    )

    may_change = False

    class Meta:
        model = Channel
        fields = ("name", "max_concurrency", "max_size", "release_interval_ms")

    def clean_name(self) -> str:
        name: str = self.cleaned_data["name"]
        if not is_name(name):
            message = gettext("This cannot be the name of a channel: {rule}.").format(rule=NAMES_ARE)
            raise ValidationError(message)
        found = Channel.objects.using(alias()).filter(pk=name)
        # Its first message has made one that has no limits yet.
        if (found.exclude(set_at=None) if self.may_change else found).exists():
            message = gettext("There is a channel “{name}” already. Its own page has its limits.").format(name=name)
            raise ValidationError(message)
        return name

    def validate_unique(self) -> None:
        """See ``clean_name``."""


@admin.display(description=gettext_lazy("running"))
def running(channel: Channel) -> SafeString | str:
    counted = channel.running - getattr(channel, "ended", 0)
    if channel.max_concurrency is None:
        return display.number(counted)
    words = display.of(display.number(counted), display.number(channel.max_concurrency))
    return display.label(words, "amber") if counted >= channel.max_concurrency else words


@admin.display(description=gettext_lazy("waiting"))
def waiting(channel: Channel) -> SafeString:
    number = getattr(channel, "waiting", 0)
    words = display.number(number) if number <= MAX_COUNTED else f"{display.number(MAX_COUNTED)}+"
    if channel.max_size is not None:
        words = display.of(words, display.number(channel.max_size))
    return link("message_changelist", words, channel=channel.pk)


@admin.display(description=gettext_lazy("release interval"))
def interval(channel: Channel) -> str:
    milliseconds = channel.release_interval_ms
    return display.NOTHING if milliseconds is None else f"{display.number(milliseconds)} ms"


@admin.display(description=gettext_lazy("next release"))
def next_release(channel: Channel) -> SafeString | str:
    """Returns when the next message may begin: after the interval, or when another one has ended."""
    if (
        channel.max_concurrency is not None
        and channel.running - getattr(channel, "ended", 0) >= channel.max_concurrency
    ):
        stands = gettext("not before the limit is raised")
        return display.quiet(gettext("when one has ended") if channel.max_concurrency else stands)
    at, now = channel.release_at, getattr(channel, "now", None)
    if at is None or (now is not None and at <= now):
        return display.quiet(gettext("at once")) if channel.released_at is None else display.NOTHING
    return display.moment(at)


@admin.display(description=gettext_lazy("state"))
def state(channel: Channel) -> SafeString | str:
    if channel.released_at is not None:
        return display.label(gettext("released"), "amber")
    return display.NOTHING if channel.set_at is not None else display.quiet(gettext("no limits set"))


@admin.display(description=gettext_lazy("limits set at"))
def set_at(channel: Channel) -> SafeString | str:
    return display.moment(channel.set_at)


@admin.display(description=gettext_lazy("released at"))
def released_at(channel: Channel) -> SafeString | str:
    return display.moment(channel.released_at)


NOW = (running, waiting, next_release, state, set_at, released_at)


class Now(Func):
    template = "pgqueue_now()"
    arity = 0
    output_field = EpochField()


@admin.register(Channel)
class ChannelAdmin(ReadOnlyAdmin):
    """Lists the channels that have messages or limits."""

    form = ChannelForm
    ordering = ("name",)
    sortable_by = ()
    list_display = ("name", running, waiting, interval, next_release, state)
    search_fields = ("name",)
    search_help_text = gettext_lazy("A part of the name.")
    actions = ("release",)

    def rows(self, request: HttpRequest) -> QuerySet[Any]:
        found: QuerySet[Any] = self.get_queryset(request).annotate(
            ended=EndedOfChannel("name"), waiting=Waiting("name"), now=Now()
        )
        return found

    def matching(self, term: str) -> Q:
        return Q(name__icontains=term)

    def has_add_permission(self, request: HttpRequest) -> bool:
        return admin.ModelAdmin.has_add_permission(self, request)

    def has_change_permission(self, request: HttpRequest, obj: Model | None = None) -> bool:  # noqa: ARG002
        return admin.ModelAdmin.has_change_permission(self, request)

    def get_form(self, request: HttpRequest, *args: Any, **kwargs: Any) -> Any:
        form: Any = super().get_form(request, *args, **kwargs)
        form.may_change = self.has_change_permission(request)
        return form

    def get_fieldsets(self, request: HttpRequest, obj: Channel | None = None) -> Any:
        limits = ["max_concurrency", "max_size", "release_interval_ms"]
        if obj is None:
            return [(None, {"fields": ["name", *limits]})]
        shown = limits if self.has_change_permission(request, obj) else ["max_concurrency", "max_size", interval]
        return [
            (None, {"fields": ["name"]}),
            (gettext("Limits"), {"fields": shown}),
            (gettext("Now"), {"fields": list(NOW)}),
        ]

    def get_readonly_fields(self, request: HttpRequest, obj: Channel | None = None) -> Any:
        return super().get_readonly_fields(request, obj) if obj is None else ("name", *NOW)

    def save_model(self, request: HttpRequest, obj: Channel, form: Any, change: bool) -> None:  # noqa: ARG002
        milliseconds = obj.release_interval_ms
        control.set_channel(
            obj.name,
            max_concurrency=obj.max_concurrency,
            max_size=obj.max_size,
            release_interval=None if milliseconds is None else dt.timedelta(milliseconds=milliseconds),
            database=alias(),
        )

    @admin.action(
        description=gettext_lazy("Release: take no new messages, run the waiting ones"), permissions=["change"]
    )
    def release(self, request: HttpRequest, queryset: QuerySet[Channel]) -> None:
        names = [channel.name for channel in queryset.only("name")[: actions.MOST]]
        if self.are_gone(request, names):
            return
        gone = [name for name in names if control.release_channel(name, database=alias())]
        audit_log.written(request, Channel, names, gettext("Released."))
        left = [name for name in names if name not in gone]
        if gone:
            message = gettext("Released and deleted: {names}.").format(names=actions.first_names(gone))
            self.message_user(request, message, messages.SUCCESS)
        if left:
            message = gettext("Released: {names}. Each channel is deleted when its messages have ended.")
            message = message.format(names=actions.first_names(left))
            self.message_user(request, message, messages.SUCCESS)
