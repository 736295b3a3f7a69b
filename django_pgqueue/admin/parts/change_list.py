"""Django's change list for tables that are too large to count or to read in full."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal

import django
from django.contrib import messages
from django.contrib.admin.options import IncorrectLookupParameters
from django.contrib.admin.views.main import ORDER_VAR, ChangeList
from django.core.paginator import InvalidPage
from django.utils.text import capfirst
from django.utils.translation import gettext

from django_pgqueue.admin.parts import chosen_columns, database, live
from django_pgqueue.admin.parts.display import number
from django_pgqueue.admin.parts.download import CONTENT_TYPES, PARAMETER
from django_pgqueue.admin.parts.paginator import CappedPaginator

if TYPE_CHECKING:
    from django.db.models import QuerySet
    from django.http import HttpRequest


WITHOUT_ROWS = "_pgqueue_without_rows"
"""Says of a request why PostgreSQL did not find its rows: the list is shown without them, and keeps its filters."""

MAX_NAMED = 3
MAX_NAME_SHOWN = 60


class CappedChangeList(ChangeList):
    """Shows a page that the paginator has fetched, and notes what is left out."""

    # The pagination.html of this package must match Django's own, which changed in 6.0.
    pages_are_a_list = django.VERSION >= (6, 0)
    notes: list[str]
    columns: list[chosen_columns.Choice]
    paginator: CappedPaginator
    model_admin: Any
    has_order_of_its_own: bool
    is_without_rows: bool

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.title = capfirst(str(self.opts.verbose_name_plural))  # Django's title asks to select a row to change

    def get_queryset(self, request: HttpRequest, exclude_parameters: list[str | None] | None = None) -> QuerySet[Any]:
        self.notes = []
        self.is_without_rows = WITHOUT_ROWS in request.__dict__
        admin = self.model_admin
        self.columns = chosen_columns.choices(admin, request, self.list_display) if admin.default_columns else []
        self.has_order_of_its_own = self.model_admin.get_ordering(request) != self.model_admin.ordering
        return super().get_queryset(request, exclude_parameters)

    def get_filters_params(self, params: dict[str, Any] | None = None) -> dict[str, Any]:
        """The parameter that names the database is no filter."""
        found: dict[str, Any] = super().get_filters_params(params)
        found.pop(database.PARAMETER, None)
        return found

    def get_filters(self, request: HttpRequest) -> Any:
        """Refuses every parameter that no filter has taken.

        Django looks up whatever the URL names, in any column and at any depth of JSON: every user who may see the list
        could guess the content of its rows letter by letter.
        """
        found = super().get_filters(request)
        left = set(found[2]) - self.model_admin.parameters
        if left:
            shown = ", ".join(f"“{name[:MAX_NAME_SHOWN]}”" for name in sorted(left)[:MAX_NAMED])
            message = gettext("This list has no filter {names}. It shows all rows.").format(names=shown)
            self.model_admin.message_user(request, message, messages.ERROR)
            raise IncorrectLookupParameters(message)
        return found

    def get_ordering_field(self, field_name: Any) -> Any:
        """Allows only sortable columns: Django accepts ``?o=`` for the others, too."""
        return super().get_ordering_field(field_name) if field_name in (self.sortable_by or ()) else None

    @property
    def downloads(self) -> list[tuple[str, str]]:
        """The kinds of files with the rows of all pages, and their addresses."""
        return [(kind.upper(), self.get_query_string({PARAMETER: kind}, ["p"])) for kind in CONTENT_TYPES]

    @property
    def live_url(self) -> str:
        """Where the open page asks for its rows as they are now.  Empty: it does not refresh."""
        keys = [str(row.pk) for row in self.result_list]
        asks = self.model_admin.lists_rows and not self.is_popup and not self.is_without_rows
        return self.get_query_string({live.PARAMETER: keys or [""]}) if asks else ""

    def url_for_result(self, result: Any) -> str:
        name = f"{self.opts.model_name}_change"
        return database.url(name, getattr(result, self.pk_attname))

    def get_ordering_field_columns(self) -> dict[int, Literal["asc", "desc"]]:
        """Marks no column under another ``get_ordering``: Django would mark the admin's ``ordering``."""
        unmarked = self.has_order_of_its_own and ORDER_VAR not in self.params
        return {} if unmarked else super().get_ordering_field_columns()

    def get_results(self, request: HttpRequest) -> None:
        if self.is_without_rows:
            self.leave_rows_out(request)
        paginator = self.model_admin.get_paginator(request, self.queryset, self.list_per_page)
        assert isinstance(paginator, CappedPaginator)  # noqa: S101 -- the admin of this list says so
        self.paginator = paginator
        try:
            self.result_list = paginator.page(self.page_num).object_list
        except InvalidPage as error:
            raise IncorrectLookupParameters(error) from error
        self.result_count = paginator.count
        self.full_result_count = None
        self.show_full_result_count = False
        self.show_admin_actions = True
        self.can_show_all = False
        self.multi_page = paginator.num_pages > 1
        if paginator.is_capped:
            self.notes.append(
                gettext("Only the first {count} are counted and shown. Filter the list to see others.").format(
                    count=number(paginator.CAP)
                )
            )

    def leave_rows_out(self, request: HttpRequest) -> None:
        self.queryset, self.page_num = self.queryset.none(), 1
        self.notes.append(request.__dict__[WITHOUT_ROWS])
