"""What the queue's pages have in common: they show, and change nothing by themselves."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar

import psycopg
from django.contrib import admin, messages
from django.core.exceptions import ValidationError
from django.db import DataError, OperationalError
from django.db.models import Q
from django.http import HttpResponseRedirect
from django.urls import reverse
from psycopg.errors import QueryCanceled

from django_pgqueue.admin.changelist import CappedChangeList
from django_pgqueue.admin.database import STATEMENT_TIMEOUT, alias, bounded
from django_pgqueue.admin.paginator import CappedPaginator

if TYPE_CHECKING:
    from django.db.models import Model, QuerySet
    from django.http import HttpRequest, HttpResponse


class ReadOnlyAdmin(admin.ModelAdmin):  # type: ignore[type-arg]
    """Rows are made and ended by the SQL functions, so nothing is added, edited or deleted here.

    The permission to change a model is the permission to use the actions of its list.
    """

    show_full_result_count = False
    show_facets = admin.ShowFacets.NEVER
    list_per_page = 50
    list_max_show_all = 0
    ordering: ClassVar[tuple[Any, ...]] = ("-id",)
    sortable_by: ClassVar[tuple[str, ...]] = ("id",)

    class Media:
        css = {"all": ("pgqueue/admin.css",)}  # noqa: RUF012 -- Django's way to say it

    def changelist_view(self, request: HttpRequest, extra_context: dict[str, Any] | None = None) -> HttpResponse:
        try:
            with bounded(alias()):
                return super().changelist_view(request, extra_context)
        except (OperationalError, DataError) as error:
            whole = request.method == "GET" and not request.GET
            return self._stopped(request, error, None if whole else request.path)

    def changeform_view(self, request: HttpRequest, *args: Any, **kwargs: Any) -> Any:
        try:
            with bounded(alias()):
                return super().changeform_view(request, *args, **kwargs)
        except OperationalError as error:
            name = f"admin:{self.opts.app_label}_{self.opts.model_name}_changelist"
            return self._stopped(request, error, reverse(name, current_app=self.admin_site.name))

    def _stopped(self, request: HttpRequest, error: Exception, instead: str | None) -> HttpResponse:
        """Says what PostgreSQL would not do, on a page that it will do; raises what is another kind of error."""
        if isinstance(error.__cause__, QueryCanceled):
            said = (
                f"That would have taken longer than {STATEMENT_TIMEOUT.rstrip('s')} seconds, so it was stopped and "
                "nothing was changed. Here is the whole list: narrow it by fewer or other filters."
            )
        elif isinstance(error.__cause__, psycopg.DataError):
            said = f"PostgreSQL can not look for that: {error} Here is the whole list."
        else:
            raise error
        if instead is None:
            raise error
        self.message_user(request, said, messages.ERROR)
        return HttpResponseRedirect(instead)

    def get_queryset(self, request: HttpRequest) -> QuerySet[Any]:
        return super().get_queryset(request).using(alias())

    def get_object(self, request: HttpRequest, object_id: str, from_field: str | None = None) -> Any:  # noqa: ARG002
        try:
            return self.one(request).get(pk=self.opts.pk.to_python(object_id))
        except (self.model.DoesNotExist, ValidationError):
            return None

    def one(self, request: HttpRequest) -> QuerySet[Any]:
        """The queryset of the row of a page of its own."""
        return self.rows(request)

    def get_changelist(self, request: HttpRequest, **kwargs: Any) -> type[CappedChangeList]:  # noqa: ARG002
        return CappedChangeList

    def get_paginator(
        self,
        request: HttpRequest,
        queryset: QuerySet[Any],
        per_page: int,
        orphans: int = 0,  # noqa: ARG002
        allow_empty_first_page: bool = True,  # noqa: ARG002, FBT
    ) -> CappedPaginator:
        return CappedPaginator(queryset, per_page, rows=self.rows(request))

    def rows(self, request: HttpRequest) -> QuerySet[Any]:
        """The queryset of the rows of a page: what they need and nothing else."""
        return self.get_queryset(request)

    def get_search_results(
        self,
        request: HttpRequest,  # noqa: ARG002
        queryset: QuerySet[Any],
        search_term: str,
    ) -> tuple[QuerySet[Any], bool]:
        term = search_term.strip()
        return (queryset.filter(self.matching(term)) if term else queryset), False

    def matching(self, term: str) -> Q:
        """The rows that somebody who searches for ``term`` means: an id, or a part of a task's name."""
        return Q(pk=int(term)) if is_id(term) else Q(task__icontains=term)

    def has_add_permission(self, request: HttpRequest) -> bool:  # noqa: ARG002
        return False

    def has_change_permission(self, request: HttpRequest, obj: Model | None = None) -> bool:
        return obj is None and super().has_change_permission(request)

    def has_delete_permission(self, request: HttpRequest, obj: Model | None = None) -> bool:  # noqa: ARG002
        return False


LONGEST_ID = 19


def is_id(text: str) -> bool:
    """Whether a text can be the id of a row."""
    return text.isascii() and text.isdigit() and len(text) <= LONGEST_ID
