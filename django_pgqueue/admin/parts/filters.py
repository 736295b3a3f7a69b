"""Filters of the lists.  No filter reads a whole table to make its choices."""

from __future__ import annotations

import datetime as dt
import json
from typing import TYPE_CHECKING, Any, NamedTuple

from django import forms
from django.contrib import admin, messages
from django.core.exceptions import ImproperlyConfigured
from django.db import connections
from django.db.models import Count, Q
from django.http import QueryDict
from django.utils.text import format_lazy
from django.utils.translation import gettext, gettext_lazy

from django_pgqueue import functions
from django_pgqueue.admin.parts import database, display, expressions
from django_pgqueue.admin.parts.read_only import may_see_content
from django_pgqueue.admin.parts.status import Status, waiting_or_held, where

if TYPE_CHECKING:
    from collections.abc import Iterator

    from django.contrib.admin import ModelAdmin
    from django.contrib.admin.views.main import ChangeList
    from django.db.models import Field, Model, QuerySet
    from django.http import HttpRequest

try:
    from rangefilter.filters import DateTimeRangeFilter, NumericRangeFilter
except ModuleNotFoundError as error:
    _message = (
        "The admin of django_pgqueue needs the package django-admin-rangefilter: pip install django-admin-rangefilter. "
        "It needs no entry in INSTALLED_APPS."
    )
    raise ImproperlyConfigured(_message) from error

LOOKED_THROUGH = 10_000
"""The names to choose from come from this many of the newest rows."""
CHOICES = 20
MAX_SECONDS = 10**9


class StatusFilter(admin.SimpleListFilter):
    title = gettext_lazy("status")
    parameter_name = "status"

    def lookups(self, request: HttpRequest, model_admin: ModelAdmin[Any]) -> list[tuple[str, str]]:  # noqa: ARG002
        return [(status.value, display.status(status)) for status in Status]

    def queryset(self, request: HttpRequest, queryset: QuerySet[Any]) -> QuerySet[Any]:
        status = self.value()
        if status is None:
            return queryset
        if status not in Status:
            return queryset.none()
        return queryset.filter(where(Status(status), database.now(request)))


class Names(NamedTuple):
    """The names found in a column, and whether there can be others."""

    found: list[str]
    complete: bool


class NameFilter(admin.SimpleListFilter):
    """Filters rows by a name in one of their columns.

    The choices are the names in the newest rows.  If there can be others, the user types the name into a field.
    """

    template = "admin/django_pgqueue/name_filter.html"
    parameter_name: str
    note: Any = format_lazy(
        gettext_lazy("Names in the newest {count} rows. Another name:"), count=display.number(LOOKED_THROUGH)
    )

    def __init__(
        self, request: HttpRequest, params: dict[str, Any], model: type[Model], model_admin: ModelAdmin[Any]
    ) -> None:
        self.names = self.find(request, model_admin)
        super().__init__(request, params, model, model_admin)

    def find(self, request: HttpRequest, model_admin: ModelAdmin[Any]) -> Names:
        return newest_names(request, model_admin)[self.parameter_name]

    def lookups(self, request: HttpRequest, model_admin: ModelAdmin[Any]) -> list[tuple[str, str]]:  # noqa: ARG002
        return [(name, name) for name in self.names.found]

    def has_output(self) -> bool:
        return bool(self.names.found) or not self.names.complete or self.value() is not None

    def choices(self, changelist: ChangeList) -> Iterator[dict[str, Any]]:  # type: ignore[override]
        known = [str(value) for value, _ in self.lookup_choices]
        for choice in super().choices(changelist):
            yield dict(choice)
        if self.value() is not None and self.value() not in known:
            yield {"selected": True, "query_string": changelist.get_query_string(), "display": self.value()}
        if not self.names.complete:
            yield {
                "parameter": self.parameter_name,
                "others": others(changelist, [self.parameter_name]),
                "note": self.note,
            }

    def queryset(self, request: HttpRequest, queryset: QuerySet[Any]) -> QuerySet[Any]:  # noqa: ARG002
        return queryset if self.value() is None else queryset.filter(self.condition(str(self.value())))

    def condition(self, value: str) -> Q:
        return Q(**{self.parameter_name: value})


class QueueFilter(NameFilter):
    title = gettext_lazy("queue")
    parameter_name = "queue"


class ChannelFilter(NameFilter):
    title = gettext_lazy("channel")
    parameter_name = "channel"


class TaskFilter(NameFilter):
    title = gettext_lazy("task")
    parameter_name = "task"
    RAW = "(raw)"  # not the dotted path of any task

    def lookups(self, request: HttpRequest, model_admin: ModelAdmin[Any]) -> list[tuple[str, str]]:
        return [*super().lookups(request, model_admin), (self.RAW, gettext("raw messages"))]

    def condition(self, value: str) -> Q:
        return Q(task__isnull=True) if value == self.RAW else super().condition(value)


class ErrorFilter(NameFilter):
    """Filters by a part of the error's class or of its message.

    Users who may not see content search the class alone: some tasks hide their messages, and a search could guess them.
    """

    title = gettext_lazy("error")
    parameter_name = "error_class"

    def queryset(self, request: HttpRequest, queryset: QuerySet[Any]) -> QuerySet[Any]:
        value = self.value()
        if value is None:
            return queryset
        of_message = Q(error_message__icontains=value) if may_see_content(request) else Q()
        return queryset.filter(Q(error_class__icontains=value) | of_message)


class ErrorGroupFilter(admin.SimpleListFilter):
    """Filters by the key of a group of the page of errors, which links here.  It offers no choices of its own.

    The key is made from the texts of errors, so users who may not see content find nothing by it.
    """

    title = gettext_lazy("group of errors")
    parameter_name = "error_group"

    def lookups(self, request: HttpRequest, model_admin: ModelAdmin[Any]) -> list[tuple[str, str]]:  # noqa: ARG002
        given = request.GET.get(self.parameter_name)
        return [(given, given)] if given else []

    def queryset(self, request: HttpRequest, queryset: QuerySet[Any]) -> QuerySet[Any]:
        if self.value() is None:
            return queryset
        if not may_see_content(request):
            return queryset.none()
        errors = queryset.filter(status__in=("failed", "retried", "lost"))
        grouped: QuerySet[Any] = errors.alias(group=expressions.ErrorGroupKey()).filter(group=self.value())
        return grouped


class ArgumentFilter(NameFilter):
    """Filters by a value anywhere in the content: a text, a number, or true or false; a number also matches its text.

    Only users who may see content have it: others could guess content by it.
    """

    title = gettext_lazy("argument")
    parameter_name = "argument"
    note = gettext_lazy("A value anywhere in the arguments:")

    def __init__(
        self, request: HttpRequest, params: dict[str, Any], model: type[Model], model_admin: ModelAdmin[Any]
    ) -> None:
        self.sees = may_see_content(request)
        super().__init__(request, params, model, model_admin)

    def find(self, request: HttpRequest, model_admin: ModelAdmin[Any]) -> Names:  # noqa: ARG002
        return Names([], complete=False)

    def has_output(self) -> bool:
        return self.sees or self.value() is not None  # without an output Django would not ask it

    def queryset(self, request: HttpRequest, queryset: QuerySet[Any]) -> QuerySet[Any]:  # noqa: ARG002
        if self.value() is None:
            return queryset
        return queryset.filter(expressions.has_argument(argument(str(self.value())))) if self.sees else queryset.none()


def argument(text: str) -> str | float | bool:
    """Returns what a user typed as a value of JSON; what is no JSON, or no single value, is a text.

    >>> argument("7"), argument("true"), argument("ada"), argument('"7"'), argument("[1]")
    (7, True, 'ada', '7', '[1]')
    """
    try:
        found = json.loads(text)
    except (ValueError, RecursionError):
        return text
    return found if isinstance(found, (str, int, float)) else text


class MessageQueueFilter(QueueFilter):
    def find(self, request: HttpRequest, model_admin: ModelAdmin[Any]) -> Names:
        """Returns queues with waiting messages, one probe each, and those of the newest rows."""
        newest = super().find(request, model_admin)
        waiting = functions.message_queues(connections[database.alias()], CHOICES + 1)
        return limited({*waiting, *newest.found}, complete=newest.complete)

    def condition(self, value: str) -> Q:
        return waiting_or_held(super().condition(value))


class MessageChannelFilter(ChannelFilter):
    def condition(self, value: str) -> Q:
        return waiting_or_held(super().condition(value))


def newest_names(request: HttpRequest, model_admin: ModelAdmin[Any]) -> dict[str, Names]:
    """Returns the names in the newest rows for all filtered columns, in one query per request."""
    columns = [
        kind.parameter_name
        for kind in model_admin.get_list_filter(request)
        if isinstance(kind, type) and issubclass(kind, NameFilter) and kind is not ArgumentFilter
    ]

    def look() -> dict[str, Names]:
        newest = model_admin.get_queryset(request).order_by("-pk")[:LOOKED_THROUGH]
        found = newest.aggregate(
            looked_through=Count("pk"), **{f"{column}_names": expressions.JoinedNames(column) for column in columns}
        )
        complete = found["looked_through"] < LOOKED_THROUGH
        return {column: limited(set(found[f"{column}_names"] or ()), complete=complete) for column in columns}

    names: dict[str, Names] = database.once(request, f"{model_admin.opts.label} names", look)
    return names


def limited(names: set[str | None], *, complete: bool) -> Names:
    present = sorted(name for name in names if name is not None)
    return Names(present[:CHOICES], complete and len(present) <= CHOICES)


def others(changelist: ChangeList, own: list[str]) -> list[tuple[str, str]]:
    """Returns the parameters of the other filters, for a form that keeps them."""
    kept = QueryDict(changelist.get_query_string(remove=own).removeprefix("?"))
    return [(name, value) for name, values in kept.lists() for value in values]


class DateInput(forms.DateInput):
    input_type = "date"


class TimeInput(forms.TimeInput):
    input_type = "time"


class MomentWidget(forms.SplitDateTimeWidget):
    def __init__(self, date: str, time: str) -> None:
        forms.MultiWidget.__init__(
            self,
            (
                DateInput({"aria-label": date}, format="%Y-%m-%d"),
                TimeInput({"aria-label": time, "step": 1}, format="%H:%M:%S"),
            ),
        )


class MomentField(forms.SplitDateTimeField):
    """A date with an optional time.  Returns naive datetimes: the filter knows the time zone."""

    def __init__(self, words: str, widget: MomentWidget, *, time: dt.time) -> None:
        self.time = time
        super().__init__(label=words, widget=widget, required=False)

    def compress(self, data_list: Any) -> dt.datetime | None:
        date, time = data_list or (None, None)
        if date is None and time is None:
            return None
        if date is None:
            raise forms.ValidationError(gettext("Enter a date as well."), code="invalid_date")
        return dt.datetime.combine(date, self.time if time is None else time.replace(fold=self.time.fold))


class MomentRangeFilter(DateTimeRangeFilter):  # type: ignore[misc]
    """django-admin-rangefilter's filter of times, where a date alone means all of the day.

    The package's template has inline styles and scripts, which a content security policy forbids.  This template is a
    plain form with the browser's date and time fields, and needs nothing in INSTALLED_APPS.
    """

    template = "admin/django_pgqueue/range_filter.html"

    def _get_form_class(self) -> type[forms.BaseForm]:
        fields = {
            self.lookup_kwarg_gte: MomentField(
                gettext("From"), MomentWidget(gettext("From date"), gettext("From time")), time=dt.time.min
            ),
            self.lookup_kwarg_lte: MomentField(
                gettext("Until"),
                MomentWidget(gettext("Until date"), gettext("Until time")),
                time=dt.time.max.replace(fold=1),
            ),
        }
        return type("MomentRangeForm", (forms.BaseForm,), {"base_fields": fields})

    def choices(self, changelist: ChangeList) -> Iterator[dict[str, Any]]:
        yield range_form(changelist, self.expected_parameters())

    @staticmethod
    def make_dt_aware(value: dt.datetime, tzname: dt.tzinfo) -> dt.datetime:
        """A clock that is changed shows some times twice, and skips some: *Until* is the later moment, *From* the
        earlier one.
        """
        both = (value.replace(fold=0), value.replace(fold=1))
        moment = (min if value.fold else max)(both, key=tzname.utcoffset)  # type: ignore[arg-type]
        return DateTimeRangeFilter.make_dt_aware(moment, tzname)  # type: ignore[no-any-return]

    def queryset(self, request: HttpRequest, queryset: QuerySet[Any]) -> QuerySet[Any]:
        if not self.used_parameters:
            return queryset
        if not self.form.is_valid():
            return nothing(request, queryset, self)
        limits = self._make_query_filter(request, self.form.cleaned_data)
        return queryset.filter(self.condition(limits)) if limits else queryset

    def condition(self, limits: dict[str, Any]) -> Q:
        return Q(**limits)


class DequeueRangeFilter(MomentRangeFilter):
    def condition(self, limits: dict[str, Any]) -> Q:
        return waiting_or_held(super().condition(limits))


class DurationFilter(NumericRangeFilter):  # type: ignore[misc]
    """A range of seconds between the start and the end of an attempt, with links for the usual ones."""

    template = "admin/django_pgqueue/range_filter.html"
    NAME = "duration"
    WORDS = gettext_lazy("duration")
    PRESETS = (
        (gettext_lazy("under 100 ms"), None, "0.1"),
        (gettext_lazy("under 1 s"), None, "1"),
        (gettext_lazy("1 s to 10 s"), "1", "10"),
        (gettext_lazy("over 10 s"), "10", None),
        (gettext_lazy("over 1 min"), "60", None),
    )

    def __init__(  # noqa: PLR0917 -- Django's own
        self,
        field: Field[Any, Any],
        request: HttpRequest,
        params: dict[str, Any],
        model: type[Model],
        model_admin: ModelAdmin[Any],
        field_path: str,  # noqa: ARG002 -- the filter is about the difference of two fields
    ) -> None:
        super().__init__(field, request, params, model, model_admin, self.NAME)
        self.title = self.WORDS

    def _get_form_class(self) -> type[forms.BaseForm]:
        fields = {
            self.lookup_kwarg_gte: self._seconds(gettext("From seconds")),
            self.lookup_kwarg_lte: self._seconds(gettext("Until seconds")),
        }
        return type("DurationForm", (forms.BaseForm,), {"base_fields": fields})

    def _seconds(self, words: str) -> forms.FloatField:
        widget = forms.NumberInput({"aria-label": words, "step": "any", "min": 0})
        return forms.FloatField(label=words, widget=widget, required=False, min_value=0, max_value=MAX_SECONDS)

    def choices(self, changelist: ChangeList) -> Iterator[dict[str, Any]]:
        own = self.expected_parameters()
        yield range_form(changelist, own)
        for words, least, most in self.PRESETS:
            limits = {self.lookup_kwarg_gte: least, self.lookup_kwarg_lte: most}
            used = {name: self.used_parameters.get(name) or None for name in limits}
            yield {
                "display": words,
                "selected": used == limits,
                "query_string": changelist.get_query_string(limits, remove=own),
            }

    def queryset(self, request: HttpRequest, queryset: QuerySet[Any]) -> QuerySet[Any]:
        if not self.used_parameters:
            return queryset
        if not self.form.is_valid():
            return nothing(request, queryset, self)
        return self.narrowed(queryset, self._make_query_filter(request, self.form.cleaned_data))

    def narrowed(self, queryset: QuerySet[Any], limits: dict[str, float]) -> QuerySet[Any]:
        spans = {name: dt.timedelta(seconds=seconds) for name, seconds in limits.items()}
        measured: QuerySet[Any] = queryset.alias(duration=expressions.duration()).filter(**spans)
        return measured


class WaitFilter(DurationFilter):
    """A range of seconds for which an attempt waited after it could have begun."""

    NAME = "wait"
    WORDS = gettext_lazy("wait")

    def narrowed(self, queryset: QuerySet[Any], limits: dict[str, float]) -> QuerySet[Any]:
        measured: QuerySet[Any] = queryset.alias(wait=expressions.Waited()).filter(
            **{name: seconds * 1000 for name, seconds in limits.items()}
        )
        return measured


def nothing(request: HttpRequest, queryset: QuerySet[Any], asked: MomentRangeFilter | DurationFilter) -> QuerySet[Any]:
    """Returns no rows for an invalid form: all rows would be the result of another filter."""
    for errors in asked.form.errors.values():
        text = gettext("Filter {filter}: {errors}").format(filter=asked.title, errors=" ".join(errors))
        messages.error(request, text)
    return queryset.none()


def range_form(changelist: ChangeList, own: list[str]) -> dict[str, Any]:
    return {"others": others(changelist, own), "clear": changelist.get_query_string(remove=own)}
