"""Exchanges, with a box that shows where a routing key leads."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from django import forms
from django.contrib import admin
from django.contrib.admin.utils import unquote
from django.contrib.admin.widgets import AdminTextInputWidget
from django.core.exceptions import ValidationError
from django.db import connections
from django.db.models import Func, IntegerField, Q
from django.utils.translation import gettext, gettext_lazy

from django_pgqueue import functions
from django_pgqueue.admin.parts import display
from django_pgqueue.admin.parts.database import PARAMETER, alias, link
from django_pgqueue.admin.parts.read_only import ReadOnlyAdmin
from django_pgqueue.admin.settings.task_form import NamedForm
from django_pgqueue.backend.lookup import default_database
from django_pgqueue.exceptions import InvalidMessage
from django_pgqueue.models.tables import Binding, Exchange
from django_pgqueue.routing.patterns import MAX_BYTES, checked_key, checked_name

if TYPE_CHECKING:
    from django.db.models import QuerySet
    from django.http import HttpRequest
    from django.utils.safestring import SafeString

ROUTING_KEY = "routing_key"
MAX_SHOWN = 100


class Bindings(Func):
    template = "(select count(*) from pgqueue_binding b where b.exchange = %(expressions)s)"
    output_field = IntegerField()


class ExchangeForm(NamedForm):
    name = forms.CharField(widget=AdminTextInputWidget, help_text=gettext_lazy("Such as “orders”."))

    class Meta:
        model = Exchange
        fields = ("name",)

    def clean_name(self) -> str:
        try:
            name = checked_name(self.cleaned_data["name"])
        except InvalidMessage as error:
            raise ValidationError(str(error)) from error
        if Exchange.objects.using(alias()).filter(pk=name).exists():
            message = gettext("There is an exchange “{name}” already.").format(name=name)
            raise ValidationError(message)
        return name


class RouteForm(forms.Form):
    routing_key = forms.CharField(
        required=False,
        strip=False,
        max_length=MAX_BYTES,
        label=gettext_lazy("Routing key"),
        widget=AdminTextInputWidget(attrs={"placeholder": "order.created", "form": "pgqueue-route"}),
    )

    def clean_routing_key(self) -> str:
        try:
            return checked_key(self.cleaned_data["routing_key"])
        except InvalidMessage as error:
            raise ValidationError(str(error)) from error


@admin.display(description=gettext_lazy("bindings"))
def bindings(exchange: Exchange) -> SafeString | str:
    number = getattr(exchange, "bound", 0)
    return link("binding_changelist", display.number(number), exchange=exchange.pk) if number else "0"


@admin.display(description=gettext_lazy("declared"))
def origin(row: Exchange | Binding) -> str:
    return gettext("in code") if row.declared else gettext("by hand")


@admin.register(Exchange)
class ExchangeAdmin(ReadOnlyAdmin):
    has_times = False
    form = ExchangeForm
    ordering = ("name",)
    sortable_by = ()
    list_display = ("name", bindings, origin)
    search_fields = ("name",)
    change_form_template = "admin/django_pgqueue/exchange/change_form.html"

    def rows(self, request: HttpRequest) -> QuerySet[Any]:
        found: QuerySet[Any] = self.get_queryset(request).annotate(bound=Bindings("name"))
        return found

    def matching(self, term: str) -> Q:
        return Q(name__icontains=term)

    def get_fieldsets(self, request: HttpRequest, obj: Exchange | None = None) -> Any:  # noqa: ARG002
        return [(None, {"fields": ["name"] if obj is None else ["name", bindings, origin]})]

    def changeform_view(
        self,
        request: HttpRequest,
        object_id: str | None = None,
        form_url: str = "",
        extra_context: dict[str, Any] | None = None,
    ) -> Any:
        """Adds the box, a separate form that only queries and changes nothing."""
        box = None if object_id is None else self._box(request, unquote(object_id))
        return super().changeform_view(request, object_id, form_url, {"box": box, **(extra_context or {})})

    def _box(self, request: HttpRequest, exchange: str) -> dict[str, Any]:
        form = RouteForm(request.GET if ROUTING_KEY in request.GET else None)
        return {
            "form": form,
            "asked": form.is_valid(),
            # Queried when the page is rendered: by then the permission and the database are certain.
            "routes": lambda: self._routes(exchange, form.cleaned_data[ROUTING_KEY])[:MAX_SHOWN],
            "database": lambda: alias() if alias() != default_database() else "",
            "parameter": PARAMETER,
        }

    def _routes(self, exchange: str, routing_key: str) -> list[dict[str, Any]]:
        return [
            {
                "queue": route.queue,
                "task": display.task(route.task),
                "patterns": route.patterns,
                "priority": route.priority,
                "max_attempts": route.max_attempts or "1",
            }
            for route in functions.exchange_route(connections[alias()], exchange, routing_key)
        ]

    # Permissions

    def has_add_permission(self, request: HttpRequest) -> bool:
        return admin.ModelAdmin.has_add_permission(self, request)

    def has_delete_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        """One at a time, with its bindings."""
        return obj is not None and all(
            request.user.has_perm(f"django_pgqueue.delete_{it}") for it in ("exchange", "binding")
        )

    def save_model(self, request: HttpRequest, obj: Exchange, form: Any, change: bool) -> None:  # noqa: ARG002
        functions.exchange_declare(connections[alias()], obj.name)

    def delete_model(self, request: HttpRequest, obj: Exchange) -> None:  # noqa: ARG002
        functions.exchange_delete(connections[alias()], obj.name)

    def get_deleted_objects(self, objs: Any, request: HttpRequest) -> Any:
        """Lists the bindings, which are deleted too."""
        found: tuple[Any, ...] = super().get_deleted_objects(objs, request)
        shown, counts, needed, protected = found
        of_it = Binding.objects.using(alias()).filter(exchange__in=[one.pk for one in objs]).order_by("pattern")
        number = of_it.count()
        if number:
            counts = {**counts, Binding._meta.verbose_name_plural: number}  # noqa: SLF001 -- Django's own way
            shown = [*shown, [gettext("Binding: {binding}").format(binding=binding) for binding in of_it[:MAX_SHOWN]]]
        return shown, counts, needed, protected
