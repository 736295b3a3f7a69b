"""Bindings: which queues and tasks get published messages."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from django import forms
from django.contrib import admin
from django.contrib.admin.widgets import AdminTextInputWidget
from django.core.exceptions import ValidationError
from django.db import DataError, connections, transaction
from django.db.models import Q
from django.utils.html import format_html
from django.utils.translation import gettext, gettext_lazy

from django_pgqueue import functions
from django_pgqueue.admin.parts import display
from django_pgqueue.admin.parts.database import alias, link, once
from django_pgqueue.admin.parts.read_only import ReadOnlyAdmin
from django_pgqueue.admin.settings.exchange import origin
from django_pgqueue.admin.settings.schedule import DeclaredFilter
from django_pgqueue.admin.settings.task_form import TaskForm
from django_pgqueue.compat import InvalidTask
from django_pgqueue.exceptions import InvalidMessage, UnknownTask
from django_pgqueue.functions import KnownBinding
from django_pgqueue.models.tables import Binding, Exchange
from django_pgqueue.routing.declared import DECLARED
from django_pgqueue.routing.exchange import check_arguments
from django_pgqueue.routing.patterns import checked_pattern
from django_pgqueue.tasks import registry
from django_pgqueue.values.limits import MAX_NAME_BYTES
from django_pgqueue.values.names import NAMES_ARE, is_name

if TYPE_CHECKING:
    from django.db.models import Model, QuerySet
    from django.http import HttpRequest
    from django.utils.safestring import SafeString


class BindingForm(TaskForm):
    exchange = forms.ChoiceField()
    kind = forms.ChoiceField(
        choices=Binding.Kind.choices,
        initial=Binding.Kind.TOPIC,
        help_text=gettext_lazy(
            "A topic has words between dots: * matches one word, # any number of words. A regular expression "
            "uses the syntax of PostgreSQL."
        ),
    )
    pattern = forms.CharField(
        required=False,
        strip=False,
        widget=AdminTextInputWidget,
        help_text=gettext_lazy("Such as “order.#” or “order.*.paid”."),
    )
    queue = forms.CharField(
        required=False,
        max_length=MAX_NAME_BYTES,
        widget=AdminTextInputWidget,
        help_text=gettext_lazy("Empty: the queue of the task."),
    )
    task = forms.CharField(
        required=False,
        empty_value=None,
        widget=AdminTextInputWidget,
        help_text=gettext_lazy(
            "Dotted path of a task, which receives the content and the routing key. Empty: raw messages."
        ),
    )
    priority = forms.IntegerField(initial=0, min_value=-100, max_value=100)
    max_attempts = forms.IntegerField(
        required=False,
        initial=5,
        help_text=gettext_lazy("Number of attempts of a message that ends with an error. Empty: one."),
    )

    class Meta:
        model = Binding
        fields = ("exchange", "kind", "pattern", "queue", "task", "priority", "max_attempts")

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        names = Exchange.objects.using(alias()).order_by("name").values_list("name", flat=True)
        if "exchange" in self.fields:
            self.fields["exchange"].choices = [(name, name) for name in names]  # type: ignore[attr-defined]
        self.before = known(self.instance) if self.instance.pk else None

    def clean_task(self) -> str | None:
        path: str | None = self.cleaned_data["task"]
        if path is None:
            return None
        registry.autodiscover()
        try:
            task = registry.find(path)
            check_arguments(task)
        except (UnknownTask, InvalidTask) as error:
            raise ValidationError(str(error)) from error
        self.check_backend(path, task)
        return path

    def clean(self) -> dict[str, Any]:
        given: dict[str, Any] = super().clean() or self.cleaned_data
        if not {"task", "queue"} - set(given):
            self._clean_queue(given)
        if not {"kind", "pattern"} - set(given):
            self._clean_pattern(given)
        return given

    def _clean_queue(self, given: dict[str, Any]) -> None:
        queue = given["queue"] or (given["task"] and registry.find(given["task"]).queue_name)
        if not is_name(queue):
            self.add_error("queue", gettext("Give a queue or a task; {rule}.").format(rule=NAMES_ARE))
        given["queue"] = queue or ""

    def _clean_pattern(self, given: dict[str, Any]) -> None:
        regex = given["kind"] == Binding.Kind.REGEX
        try:
            checked_pattern(given["pattern"], regex=regex)
            with transaction.atomic(using=alias()):
                functions.binding_compile(connections[alias()], given["kind"], given["pattern"])
        except (InvalidMessage, DataError) as error:
            self.add_error("pattern", functions.refusal_of(error))

    def validate_unique(self) -> None:
        """Refuses to make a binding equal to another one: equal bindings are one binding."""
        new = known(Binding(**{name: self.cleaned_data.get(name) for name in self._meta.fields or ()}))
        there = {binding.key for binding, _ in functions.bindings(connections[alias()])}
        if not self.errors and new.key in there and (self.before is None or new.key != self.before.key):
            self.add_error("pattern", gettext("This binding exists already."))


def known(binding: Binding) -> KnownBinding:
    return KnownBinding(
        exchange=binding.exchange,
        pattern=binding.pattern,
        kind=binding.kind,
        queue=binding.queue,
        task=binding.task,
        priority=binding.priority,
        max_attempts=binding.max_attempts,
    )


@admin.display(description=gettext_lazy("pattern"))
def pattern(binding: Binding) -> SafeString | str:
    if binding.kind == Binding.Kind.REGEX:
        return format_html(
            "{} {}", display.shortened(binding.pattern, 80), display.quiet(gettext("(regular expression)"))
        )
    return display.shortened(binding.pattern, 80) if binding.pattern else display.quiet(gettext("(no word)"))


@admin.display(description=gettext_lazy("exchange"))
def exchange(binding: Binding) -> SafeString:
    return link("exchange_change", binding.exchange, binding.exchange)


@admin.display(description=gettext_lazy("task"))
def task(binding: Binding) -> SafeString | str:
    return display.task(binding.task)


@admin.register(Binding)
class BindingAdmin(ReadOnlyAdmin):
    """Edits bindings that were made by hand; those that the code declares are changed in the code."""

    has_times = False
    form = BindingForm
    ordering = ("exchange", "pattern", "id")
    sortable_by = ()
    list_display = (pattern, exchange, "queue", task, "priority", "max_attempts", origin)
    list_filter = (DeclaredFilter,)
    linked_by = ("exchange",)
    search_fields = ("pattern", "queue", "task")
    search_help_text = gettext_lazy("A part of the pattern, or of the name of the exchange, the queue or the task.")

    def rows(self, request: HttpRequest) -> QuerySet[Any]:
        found: QuerySet[Any] = self.get_queryset(request).defer("likeness", "regex")
        return found

    def matching(self, term: str) -> Q:
        return Q(*[(f"{name}__icontains", term) for name in ("pattern", "exchange", "queue", "task")], _connector=Q.OR)

    def get_fieldsets(self, request: HttpRequest, obj: Binding | None = None) -> Any:
        if obj is not None and not self.has_change_permission(request, obj):
            return [(None, {"fields": [exchange, pattern, "queue", task, "priority", "max_attempts", origin]})]
        return [
            (None, {"fields": ["exchange", "kind", "pattern"]}),
            (gettext("Receiver"), {"fields": ["queue", "task"]}),
            (gettext("How"), {"fields": ["priority", "max_attempts"]}),
        ]

    # Permissions

    def has_add_permission(self, request: HttpRequest) -> bool:
        return admin.ModelAdmin.has_add_permission(self, request)

    def has_change_permission(self, request: HttpRequest, obj: Model | None = None) -> bool:
        may = admin.ModelAdmin.has_change_permission(self, request)
        return may and not (isinstance(obj, Binding) and obj.declared)

    def has_delete_permission(self, request: HttpRequest, obj: Model | None = None) -> bool:
        """One at a time; one that the code declares would come back with the next deployment."""
        if not isinstance(obj, Binding) or (obj.declared and known(obj).key in self._declared(request)):
            return False
        return admin.ModelAdmin.has_delete_permission(self, request)

    def _declared(self, request: HttpRequest) -> dict[tuple[str, ...], KnownBinding]:
        def look() -> Any:
            registry.autodiscover()
            return DECLARED.bindings_in(alias())

        found: dict[tuple[str, ...], KnownBinding] = once(request, "bindings", look)
        return found

    def save_model(self, request: HttpRequest, obj: Binding, form: Any, change: bool) -> None:  # noqa: ARG002
        connection = connections[alias()]
        new = known(obj)
        if form.before is not None and form.before.key != new.key:
            functions.binding_delete(connection, form.before)
        obj.pk, _ = functions.binding_declare(connection, new)

    def delete_model(self, request: HttpRequest, obj: Binding) -> None:  # noqa: ARG002
        functions.binding_delete(connections[alias()], known(obj))
