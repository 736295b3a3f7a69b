"""Events that were emitted: a list, and a page with the payload."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from django.contrib import admin
from django.db.models import Q
from django.utils.translation import gettext_lazy

from django_pgqueue.admin.message.emitted import RESERVED
from django_pgqueue.admin.parts import display, filters
from django_pgqueue.admin.parts.content import ShownContent
from django_pgqueue.admin.parts.read_only import ReadOnlyAdmin, may_see_content
from django_pgqueue.models.tables import Event
from django_pgqueue.monitoring.overview.clamped import Moment

if TYPE_CHECKING:
    from django.db.models import QuerySet
    from django.http import HttpRequest
    from django.utils.safestring import SafeString


@admin.display(description=gettext_lazy("emitted at"))
def emitted_at(event: Event) -> SafeString | str:
    return display.moment(getattr(event, "emitted", None))


@admin.register(Event)
class EventAdmin(ReadOnlyAdmin):
    """In the order of names, for which there is an index."""

    gone = gettext_lazy("deleted")
    ordering = ("name",)
    sortable_by = ()
    list_display = ("name", emitted_at)
    list_filter = (("emitted_at", filters.MomentRangeFilter),)
    search_fields = ("name",)
    search_help_text = gettext_lazy(
        "The beginning of a name. Events are deleted with the history of their day, but not before the tasks that wait "
        "for them have read them."
    )

    def get_queryset(self, request: HttpRequest) -> QuerySet[Any]:
        """Decisions are events, too: the page of approvals has them."""
        return super().get_queryset(request).exclude(name__startswith=RESERVED)

    def rows(self, request: HttpRequest) -> QuerySet[Any]:
        found: QuerySet[Any] = self.get_queryset(request).defer("payload").annotate(emitted=Moment("emitted_at"))
        return found

    def matching(self, term: str) -> Q:
        return Q(name__startswith=term)

    def get_fieldsets(self, request: HttpRequest, obj: Event | None = None) -> Any:  # noqa: ARG002
        sees = may_see_content(request)

        @admin.display(description=gettext_lazy("payload"))
        def payload(event: Event) -> SafeString | str:
            return ShownContent(event, None, ("payload",), sees=sees).block("payload")

        return [(None, {"fields": ["name", emitted_at, payload]})]
