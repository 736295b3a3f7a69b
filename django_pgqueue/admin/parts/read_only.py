"""The base of the queue's pages: they show rows, and change nothing by themselves."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar

from django.contrib import admin, messages
from django.contrib.admin.helpers import ACTION_CHECKBOX_NAME
from django.contrib.admin.utils import unquote
from django.contrib.admin.views.main import ERROR_FLAG
from django.core.exceptions import ValidationError
from django.core.paginator import Paginator
from django.db import DataError, InternalError, OperationalError, ProgrammingError
from django.db.models import Q
from django.http import HttpResponse, HttpResponseRedirect
from django.template.response import SimpleTemplateResponse
from django.utils.translation import gettext, gettext_lazy
from psycopg.errors import DeadlockDetected, SerializationFailure

from django_pgqueue.admin.parts import audit_log, chosen_columns, database, direction, download, live, refusal, sidebar
from django_pgqueue.admin.parts.change_list import WITHOUT_ROWS, CappedChangeList
from django_pgqueue.admin.parts.database import alias
from django_pgqueue.admin.parts.paginator import CappedPaginator
from django_pgqueue.backend.lookup import default_database
from django_pgqueue.exceptions import OutdatedQueue

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from django.db.models import Field, Model, QuerySet
    from django.http import HttpRequest


class ReadOnlyAdmin(admin.ModelAdmin):  # type: ignore[type-arg]
    """Adds, edits and deletes nothing: the SQL functions make and end the rows.

    To view, to change, to run, to cancel and to see content are separate permissions.
    """

    show_full_result_count = False
    show_facets = admin.ShowFacets.NEVER
    list_per_page = 50
    list_max_show_all = 0
    ordering: ClassVar[tuple[Any, ...]] = ("-id",)
    sortable_by: ClassVar[tuple[str, ...]] = ("id",)
    has_times: ClassVar[bool] = True
    """Whether its pages show times, and so the time zone."""
    lists_rows: ClassVar[bool] = True
    """Whether its list has rows: it refreshes them while it is open, and offers them as a file."""
    enqueues: ClassVar[bool] = False
    """Whether its actions enqueue messages: a form that is sent twice is to do so once (``done_since_shown``)."""
    is_live_page: ClassVar[bool] = False
    """Whether the open page of a row refreshes the fields that nobody can edit."""
    gone: ClassVar[Any] = gettext_lazy("gone")
    """The word for a row that an open list shows and the table has no more."""
    default_columns: ClassVar[tuple[str, ...]] = ()
    """Those of ``columns`` that a list shows until somebody chooses others.  Empty: nothing can be chosen."""
    linked_by: ClassVar[tuple[str, ...]] = ()
    """Columns by which links of other pages filter the list, besides its own filters and the primary key."""

    def __init_subclass__(cls, **kwargs: Any) -> None:
        """A list that a project writes down is shown as it is."""
        super().__init_subclass__(**kwargs)
        writes = next(vars(base) for base in cls.__mro__ if {"list_display", "default_columns"} & vars(base).keys())
        if "default_columns" not in writes:
            cls.default_columns = ()

    class Media:
        css = {"all": ("pgqueue/admin.css",)}  # noqa: RUF012 -- Django's way to say it
        js = ("pgqueue/once.js",)

    def get_list_display(self, request: HttpRequest) -> Any:
        return chosen_columns.shown(self, request) if self.default_columns else super().get_list_display(request)

    def columns(self, request: HttpRequest) -> tuple[Any, ...]:
        """Returns all columns that the list can show."""
        return tuple(super().get_list_display(request))

    def changelist_view(self, request: HttpRequest, extra_context: dict[str, Any] | None = None) -> HttpResponse:
        kind = download.asked(request) if self.lists_rows else None

        def answer() -> HttpResponse:
            if kind is not None:
                return download.response(self, request, kind)
            own = {"databases": database.choices(request.path), "seen": audit_log.newest() if self.enqueues else None}
            found = super(ReadOnlyAdmin, self).changelist_view(request, {**own, **(extra_context or {})})
            is_refused = isinstance(found, HttpResponseRedirect) and found.url == f"{request.path}?{ERROR_FLAG}=1"
            return database.without_parameters(request) if is_refused else found

        if self.default_columns and chosen_columns.asked(request):
            return chosen_columns.response(self, request)
        if self.lists_rows and live.asked(request):
            return live.response(self, request)

        def without_rows(why: str) -> HttpResponse:
            kept = gettext("The list shows no rows. Its filters are still set: use fewer or other ones.")
            request.__dict__[WITHOUT_ROWS] = f"{why} {kept}"
            return answer()

        if request.method == "POST":
            return self.answered(request, answer, instead=request.get_full_path())
        if kind is not None:
            return self.answered(request, answer, instead=download.list_url(request))
        return self.answered(request, answer, stopped=without_rows, instead=self._without_filters(request))

    def response_action(self, request: HttpRequest, queryset: QuerySet[Any], *args: Any, **kwargs: Any) -> Any:
        """Takes the selected rows, also those that do not match the list's filters any more: the user still means them.

        What cannot be the key of a row is left out: Django would look it up, and fail.
        """
        posted = request.POST.copy()
        keys = [key for key in posted.getlist(ACTION_CHECKBOX_NAME) if _may_be(self.opts.pk, key)]
        posted.setlist(ACTION_CHECKBOX_NAME, keys)
        request.POST = posted  # type: ignore[assignment]
        chosen = self.get_queryset(request) if posted.get("select_across", "0") == "0" else queryset
        return super().response_action(request, chosen, *args, **kwargs)

    def are_gone(self, request: HttpRequest, rows: Sequence[object]) -> bool:
        """Whether none of the rows of an action is there any more, which the user is told."""
        if not rows:
            self.message_user(request, gettext("What you selected is not there any more."), messages.WARNING)
        return not rows

    def _without_filters(self, request: HttpRequest) -> str | None:
        """Returns the URL of the list without filters.  None: that is what the request asks for."""
        if set(request.GET) <= {database.PARAMETER}:
            return None
        return f"{request.path}{database.same(request)}"

    def changeform_view(
        self,
        request: HttpRequest,
        object_id: str | None = None,
        form_url: str = "",
        extra_context: dict[str, Any] | None = None,
    ) -> Any:
        def answer() -> HttpResponse:
            context = {**self._elsewhere(), **(extra_context or {})}
            if self.is_live_page and request.method == "GET" and object_id is not None:
                context["live_page"] = live.page_url(request)
            if request.method == "POST" and object_id is not None:
                refused = self.refused(request, unquote(object_id))
                if refused is not None:
                    return refused
            return super(ReadOnlyAdmin, self).changeform_view(request, object_id, form_url, context)

        if self.is_live_page and object_id is not None and live.asked(request):
            return live.page(request, answer)
        return self.answered(request, answer)

    def refused(self, request: HttpRequest, object_id: str) -> HttpResponse | None:  # noqa: ARG002
        """Returns the response if the row cannot be saved any more."""
        return None

    def history_view(self, request: HttpRequest, object_id: str, extra_context: dict[str, Any] | None = None) -> Any:
        return self._about(request, object_id, extra_context, super().history_view)

    def delete_view(self, request: HttpRequest, object_id: str, extra_context: dict[str, Any] | None = None) -> Any:
        return self._about(request, object_id, extra_context, super().delete_view)

    def _about(
        self, request: HttpRequest, object_id: str, extra_context: dict[str, Any] | None, view: Callable[..., Any]
    ) -> Any:
        """Shows a page about one row, with links back to it in the same database."""

        def answer() -> HttpResponse:
            page = {"page_url": database.url(f"{self.opts.model_name}_change", unquote(object_id))}
            found: HttpResponse = view(request, object_id, {**self._elsewhere(), **page, **(extra_context or {})})
            return found

        return self.answered(request, answer)

    def _elsewhere(self) -> dict[str, Any]:
        """Returns the context for links to the same database (None: the default backend's), and for the time zone."""
        where = {"elsewhere": alias() if alias() != default_database() else None, "list_url": self.list_url()}
        return {**where, "has_times": self.has_times}

    def get_preserved_filters(self, request: HttpRequest) -> str:
        """The links that Django itself makes, such as *Add*, *History* and *Delete*, lead to the same database."""
        found = (database.same(request).removeprefix("?"), super().get_preserved_filters(request))
        return "&".join(filter(None, found))

    def get_deleted_objects(self, objs: Any, request: HttpRequest) -> Any:
        shown, *others = super().get_deleted_objects(objs, request)
        return [database.leading_here(one) for one in shown], *others

    def message_user(self, request: HttpRequest, message: Any, *args: Any, **kwargs: Any) -> None:
        super().message_user(request, database.leading_here(message), *args, **kwargs)

    def response_delete(self, request: HttpRequest, obj_display: str, obj_id: int) -> HttpResponse:
        answer: HttpResponse = super().response_delete(request, obj_display, obj_id)
        is_list = alias() != default_database() and self.has_view_or_change_permission(request)
        return HttpResponseRedirect(self.list_url()) if is_list else answer

    def answered(
        self,
        request: HttpRequest,
        answer: Callable[[], HttpResponse],
        *,
        stopped: Callable[[str], HttpResponse] | None = None,
        instead: str | None = "",
    ) -> HttpResponse:
        """Returns the response, from the database that the URL names and within the time limit.

        The limit includes rendering, because templates run queries.  If PostgreSQL stops the query or refuses it,
        ``stopped`` answers, given the reason, and ``instead`` is where to redirect if there is none, or if it is
        stopped, too.
        """
        told = len(live.said(request))
        try:
            with database.about(request), audit_log.in_one_transaction(request):
                response = answer()
                if isinstance(response, SimpleTemplateResponse):
                    sidebar.lead_to_the_same_database(response.context_data or {})
                    return direction.kept_in(response.render())
                return response
        except (OperationalError, InternalError, DataError, ProgrammingError) as error:
            del live.said(request)[told:]  # what was rolled back was not done
            why = refusal.why(error)
            if stopped is not None and why:
                return self.answered(request, lambda: stopped(why), instead=instead)
            with database.chosen(request):
                here = self.list_url() if instead == "" else instead
            return self._stopped(request, error, here)
        except OutdatedQueue as error:
            return HttpResponse(f"{error}\n", content_type="text/plain; charset=utf-8", status=503)

    def list_url(self) -> str:
        return database.url(f"{self.opts.model_name}_changelist")

    def _stopped(self, request: HttpRequest, error: Exception, instead: str | None) -> HttpResponse:
        """Redirects to a page that works, with a message about what PostgreSQL refused; raises other errors."""
        if why := refusal.why(error):
            text = f"{why} {gettext('Nothing was changed.')}"
            if instead == self._without_filters(request):
                text += f" {gettext('The list now has no filters: use fewer or other ones.')}"
        elif isinstance(error.__cause__, DeadlockDetected | SerializationFailure) and request.method == "POST":
            text = gettext("Somebody else changed the same rows at this moment. Nothing was changed: try again.")
        else:
            raise error
        if instead is None:  # the list without filters: there is no page that asks less
            return HttpResponse(f"{why}\n", content_type="text/plain; charset=utf-8", status=503)
        self.message_user(request, text, messages.ERROR)
        return HttpResponseRedirect(instead)

    def page_of(self, request: HttpRequest) -> str | None:
        """Returns the URL of the page with the pressed button."""
        pk = request.POST.get("page", "")
        return database.url(f"{self.opts.model_name}_change", pk) if is_id(pk) else None

    def back(self, request: HttpRequest) -> HttpResponse | None:
        """Redirects to the page of the action; None: the list."""
        page = self.page_of(request)
        return HttpResponseRedirect(page) if page else None

    def get_queryset(self, request: HttpRequest) -> QuerySet[Any]:
        return super().get_queryset(request).using(alias())

    def get_object(self, request: HttpRequest, object_id: str, from_field: str | None = None) -> Any:  # noqa: ARG002
        try:
            return self.one(request).get(pk=self.opts.pk.to_python(object_id))
        except (self.model.DoesNotExist, ValidationError):
            return None

    def one(self, request: HttpRequest) -> QuerySet[Any]:
        """Returns the queryset for the page of one row."""
        return self.rows(request)

    def get_changelist(self, request: HttpRequest, **kwargs: Any) -> type[CappedChangeList]:  # noqa: ARG002
        return CappedChangeList

    @property
    def parameters(self) -> set[str]:
        """Parameters that a URL may have besides those of the list's own filters."""
        return {"pk", str(self.opts.pk.name), *self.linked_by}

    def get_paginator(
        self,
        request: HttpRequest,
        queryset: QuerySet[Any],
        per_page: int,
        orphans: int = 0,  # noqa: ARG002
        allow_empty_first_page: bool = True,  # noqa: ARG002, FBT
    ) -> Paginator[Any]:
        if queryset.model is not self.model:  # the entries of Django's admin log
            return Paginator(queryset, per_page)
        return CappedPaginator(queryset, per_page, rows=self.rows(request))

    def rows(self, request: HttpRequest) -> QuerySet[Any]:
        """Returns the queryset for the rows of a page, with only the needed columns."""
        return self.get_queryset(request)

    def get_search_results(
        self,
        request: HttpRequest,  # noqa: ARG002
        queryset: QuerySet[Any],
        search_term: str,
    ) -> tuple[QuerySet[Any], bool]:
        term = search_term.strip() if self.search_fields else ""
        return (queryset.filter(self.matching(term)) if term else queryset), False

    def matching(self, term: str) -> Q:
        """Returns the condition for a search for ``term``: an id, or a part of a task's name."""
        return Q(pk=int(term)) if is_id(term) else Q(task__icontains=term)

    def has_run_permission(self, request: HttpRequest) -> bool:
        return bool(request.user.has_perm("django_pgqueue.run_message"))

    def has_cancel_permission(self, request: HttpRequest) -> bool:
        return bool(request.user.has_perm("django_pgqueue.cancel_message"))

    def has_emit_permission(self, request: HttpRequest) -> bool:
        return bool(request.user.has_perm("django_pgqueue.emit_event"))

    def has_add_permission(self, request: HttpRequest) -> bool:  # noqa: ARG002
        return False

    def has_change_permission(self, request: HttpRequest, obj: Model | None = None) -> bool:  # noqa: ARG002
        """Pages with editable fields, or with actions that count as a change, override this."""
        return False

    def has_delete_permission(self, request: HttpRequest, obj: Model | None = None) -> bool:  # noqa: ARG002
        return False


def _may_be(pk: Field[Any, Any], key: str) -> bool:
    """Whether a text can be the primary key of a row."""
    try:
        pk.to_python(key)
    except ValidationError:
        return False
    return "\0" not in key


def may_see_content(request: HttpRequest) -> bool:
    """Whether the user may see content, headers, state, progress and results, not only statuses."""
    return bool(request.user.has_perm("django_pgqueue.see_content"))


MAX_ID = 19


def is_id(text: str) -> bool:
    """Whether a text can be the id of a row."""
    return text.isascii() and text.isdigit() and len(text) <= MAX_ID
