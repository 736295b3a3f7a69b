"""Queues that are paused, or were."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from django import forms
from django.contrib import admin, messages
from django.contrib.admin.widgets import AdminTextInputWidget
from django.core.exceptions import ValidationError
from django.db.models import Q
from django.utils.translation import gettext, gettext_lazy

from django_pgqueue import control
from django_pgqueue.admin.parts import actions, audit_log, display
from django_pgqueue.admin.parts.database import alias
from django_pgqueue.admin.parts.read_only import ReadOnlyAdmin
from django_pgqueue.admin.settings.task_form import NamedForm
from django_pgqueue.models.tables import QueueState
from django_pgqueue.monitoring.overview.clamped import Moment
from django_pgqueue.values.limits import MAX_NAME_BYTES
from django_pgqueue.values.names import name_of

if TYPE_CHECKING:
    from django.db.models import Model, QuerySet
    from django.http import HttpRequest
    from django.utils.safestring import SafeString


class PauseForm(NamedForm):
    name = forms.CharField(
        label=gettext_lazy("Queue"),
        max_length=MAX_NAME_BYTES,
        widget=AdminTextInputWidget,
        help_text=gettext_lazy("It is paused from now on: running messages continue, new messages wait."),
    )

    class Meta:
        model = QueueState
        fields = ("name",)

    def clean_name(self) -> str:
        return name_of("queue", self.cleaned_data["name"], ValidationError)

    def validate_unique(self) -> None:
        """A resumed queue can be paused again."""


@admin.display(description=gettext_lazy("state"))
def state(queue: QueueState) -> SafeString:
    paused = getattr(queue, "paused", None)
    return (
        display.label(gettext("not paused"), "green") if paused is None else display.label(gettext("paused"), "amber")
    )


@admin.display(description=gettext_lazy("paused at"))
def paused_at(queue: QueueState) -> SafeString | str:
    return display.moment(getattr(queue, "paused", None))


@admin.display(description=gettext_lazy("paused by"))
def paused_by(queue: QueueState) -> SafeString | str:
    return display.shortened(queue.paused_by, 60)


@admin.register(QueueState)
class QueueAdmin(ReadOnlyAdmin):
    """Lists the queues that were paused at least once; "add" pauses a queue."""

    form = PauseForm
    ordering = ("name",)
    sortable_by = ()
    list_display = ("name", state, paused_at, paused_by)
    search_fields = ("name",)
    search_help_text = gettext_lazy(
        "A part of the name. The list has the queues that were paused at least once: the overview has all."
    )
    actions = ("pause", "resume")

    def rows(self, request: HttpRequest) -> QuerySet[Any]:
        found: QuerySet[Any] = self.get_queryset(request).only("name", "paused_by").annotate(paused=Moment("paused_at"))
        return found

    def matching(self, term: str) -> Q:
        return Q(name__icontains=term)

    def has_add_permission(self, request: HttpRequest) -> bool:
        return admin.ModelAdmin.has_add_permission(self, request)

    def has_change_permission(self, request: HttpRequest, obj: Model | None = None) -> bool:
        """Allows the actions; the page of a row has nothing to edit."""
        return obj is None and admin.ModelAdmin.has_change_permission(self, request)

    def get_fieldsets(self, request: HttpRequest, obj: QueueState | None = None) -> Any:  # noqa: ARG002
        return [(None, {"fields": ["name"] if obj is None else ["name", state, paused_at, paused_by]})]

    def save_model(self, request: HttpRequest, obj: QueueState, form: Any, change: bool) -> None:  # noqa: ARG002
        control.pause(obj.name, by=audit_log.name_of_user(request), database=alias())

    @admin.action(description=gettext_lazy("Pause"), permissions=["change"])
    def pause(self, request: HttpRequest, queryset: QuerySet[QueueState]) -> None:
        names = [queue.name for queue in queryset.only("name")[: actions.MOST]]
        if self.are_gone(request, names):
            return
        for name in names:
            control.pause(name, by=audit_log.name_of_user(request), database=alias())
        audit_log.written(request, QueueState, names, gettext("Paused."))
        message = gettext("Paused: {names}.").format(names=actions.first_names(names))
        self.message_user(request, message, messages.SUCCESS)

    @admin.action(description=gettext_lazy("Resume"), permissions=["change"])
    def resume(self, request: HttpRequest, queryset: QuerySet[QueueState]) -> None:
        names = [
            queue.name
            for queue in queryset.only("name")[: actions.MOST]
            if control.resume(queue.name, database=alias())
        ]
        audit_log.written(request, QueueState, names, gettext("Resumed."))
        none = gettext("None of them was paused.")
        message = gettext("Resumed: {names}.").format(names=actions.first_names(names)) if names else none
        self.message_user(request, message, messages.SUCCESS if names else messages.WARNING)
