"""The filters of the message list as the filter of an edit, and an edit's filter in words."""

from __future__ import annotations

import datetime as dt
from typing import TYPE_CHECKING, Any

from django.contrib.admin import FieldListFilter, SimpleListFilter
from django.utils.translation import gettext, gettext_lazy, ngettext

from django_pgqueue.admin.parts import display, filters
from django_pgqueue.admin.parts.change_list import CappedChangeList
from django_pgqueue.admin.parts.read_only import is_id, may_see_content
from django_pgqueue.control import Filter
from django_pgqueue.exceptions import InvalidEdit
from django_pgqueue.values.times import EPOCH, local

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from django.http import HttpRequest

    from django_pgqueue.admin.parts.read_only import ReadOnlyAdmin

HOUR, MINUTE = dt.timedelta(hours=1), dt.timedelta(minutes=1)
RANGES = {"dequeue_at": "run_at", "created_at": "created", "finished_at": "finished"}
COLUMNS = {
    "argument": gettext_lazy("argument"),
    "channel": gettext_lazy("channel"),
    "created": gettext_lazy("created"),
    "dequeue_at": gettext_lazy("dequeue at"),
    "duration": gettext_lazy("duration"),
    "error": gettext_lazy("error"),
    "error_class": gettext_lazy("error"),
    "error_group": gettext_lazy("group of errors"),
    "final": gettext_lazy("final"),
    "finished_at": gettext_lazy("finished at"),
    "message_id": gettext_lazy("message"),
    "priority": gettext_lazy("priority"),
    "queue": gettext_lazy("queue"),
    "run_at": gettext_lazy("run at"),
    "started_at": gettext_lazy("started at"),
    "status": gettext_lazy("status"),
    "task": gettext_lazy("task"),
    "task_contains": gettext_lazy("task contains"),
    "wait": gettext_lazy("wait"),
}
"""Criteria of lists and of edits, for people."""
OF_CONTENT = ("argument", "error", "error_contains")
"""Criteria that quote what only users who may see content read."""


class FilterList(CappedChangeList):
    """The filters of a list.  The edit finds the rows, which may take too long for a list."""

    @classmethod
    def of(cls, admin: ReadOnlyAdmin, request: HttpRequest) -> FilterList:
        return cls(
            request, admin.model, list_display=(), list_display_links=None, list_filter=admin.get_list_filter(request),
            date_hierarchy=None, search_fields=admin.get_search_fields(request), list_select_related=False,
            list_per_page=admin.list_per_page, list_max_show_all=0, list_editable=(), model_admin=admin, sortable_by=(),
            search_help_text=None,
        )  # fmt: skip

    def get_results(self, request: HttpRequest) -> None:
        """Reads no rows."""


def of_list(admin: ReadOnlyAdmin, request: HttpRequest) -> Filter:
    """Returns what the list shows as the filter of an edit.  Raises ``InvalidEdit`` for what no edit can have."""
    listed = FilterList.of(admin, request)
    found: dict[str, Any] = {}
    term = listed.query.strip()
    if is_id(term):
        message = gettext("“{id}” finds one message: use its page, or the actions of the list.").format(id=term)
        raise InvalidEdit(message)
    if term:
        found["task_contains"] = term
    named = sorted(listed.model_admin.parameters & {name.partition("__")[0] for name in request.GET})
    if named:
        raise _unknown(", ".join(map(column, named)))
    for spec in listed.filter_specs:
        found |= dict(_criterion(spec, request))
    return Filter(**found)


OWN = (
    filters.ArgumentFilter, filters.ChannelFilter, filters.ErrorFilter, filters.ErrorGroupFilter, filters.QueueFilter,
    filters.StatusFilter, filters.TaskFilter,
)  # fmt: skip
"""The filters whose value is a criterion: one that a project adds to a list may mean anything by the same name."""


def _criterion(spec: Any, request: HttpRequest) -> Iterator[tuple[str, Any]]:
    match spec:
        case filters.MomentRangeFilter():
            yield from _of_moments(spec, request)
        case filters.DurationFilter():
            if any(request.GET.get(name) for name in spec.expected_parameters()):
                raise _unknown(spec.title)
        case FieldListFilter() if spec.used_parameters:
            yield from _of_field(spec)
        case SimpleListFilter() if spec.value() is not None:
            yield _of_value(spec, request)


def _of_moments(spec: Any, request: HttpRequest) -> Iterator[tuple[str, Any]]:
    if not spec.used_parameters:
        return
    if not spec.form.is_valid():
        message = gettext("The range of {filter} is invalid.").format(filter=spec.title)
        raise InvalidEdit(message)
    for name, value in spec._make_query_filter(request, spec.form.cleaned_data).items():  # noqa: SLF001
        column, _, how = name.rpartition("__")
        base = RANGES.get(column.removesuffix("__range"))
        if base is None:
            raise _unknown(spec.title)
        yield f"{base}_{'from' if how == 'gte' else 'until'}", value


def _of_value(spec: Any, request: HttpRequest) -> tuple[str, Any]:
    if not isinstance(spec, OWN):
        raise _unknown(spec.title)
    value = str(spec.value())
    if isinstance(spec, filters.ArgumentFilter | filters.ErrorGroupFilter) and not may_see_content(request):
        message = gettext("You may not see content, and so you cannot filter by it.")
        raise InvalidEdit(message)
    if isinstance(spec, filters.ArgumentFilter):
        return "argument", filters.argument(value)
    if isinstance(spec, filters.ErrorFilter) and may_see_content(request):
        return "error", value
    is_raw = isinstance(spec, filters.TaskFilter) and value == filters.TaskFilter.RAW
    return ("raw", True) if is_raw else (str(spec.parameter_name), value)


def _unknown(name: object) -> InvalidEdit:
    return InvalidEdit(gettext("An edit cannot be filtered by {filter}.").format(filter=name))


def _of_field(spec: Any) -> Iterator[tuple[str, Any]]:
    """An edit takes final attempts alone, so the choice of these is no criterion of it."""
    values = [
        value for given in spec.used_parameters.values() for value in (given if isinstance(given, list) else [given])
    ]
    if spec.field_path == "status" and len(values) == 1:
        yield "status", str(values[0])
    elif not (spec.field_path == "final" and all(str(value) in {"1", "True"} for value in values)):
        raise _unknown(spec.title)


def words(found: Mapping[str, Any], *, sees_content: bool = True) -> list[str]:
    """Returns the criteria of an edit for people, given as JSON.

    >>> words({"queue": "mail", "raw": True, "priority_from": 5})
    ['queue mail', 'raw messages', 'priority from 5']
    """
    return [
        _worded(name, value if sees_content or name not in OF_CONTENT else gettext("(hidden)"))
        for name, value in members(found)
    ]


def members(found: Any) -> list[tuple[str, Any]]:
    """Returns the members of a JSON object; of other JSON, which somebody wrote by hand, there are none."""
    return list(found.items()) if isinstance(found, dict) else []


def _worded(name: str, value: Any) -> str:
    if name == "raw":
        return gettext("raw messages") if value else gettext("tasks")
    if name == "status":
        return f"{column(name)} {display.status(str(value))}"
    base, _, limit = name.rpartition("_")
    if limit not in {"from", "until"}:
        return f"{column(name)} {value}"
    return f"{limited(column(base), limit)} {value if base == 'priority' else moment(value)}"


def limited(words: str, limit: str) -> str:
    """Returns a column with the end of a range of it."""
    ranges = {"from": gettext("{column} from"), "until": gettext("{column} until")}
    return ranges.get(limit, "{column}").format(column=words)


def column(name: str) -> str:
    """Returns the name of a column, or of a criterion, for people."""
    return str(COLUMNS.get(name, name.replace("_", " ")))


def from_now(delay: dt.timedelta) -> str:
    """Returns a delay of a form for people."""
    weeks, days, hours, minutes = delay.days // 7, delay.days, delay // HOUR, delay // MINUTE
    if weeks:
        return ngettext("{count} week from now", "{count} weeks from now", weeks).format(count=weeks)
    if days:
        return ngettext("{count} day from now", "{count} days from now", days).format(count=days)
    if hours:
        return ngettext("{count} hour from now", "{count} hours from now", hours).format(count=hours)
    return ngettext("{count} minute from now", "{count} minutes from now", minutes).format(count=minutes)


def moment(ms: object) -> str:
    try:
        return f"{local(EPOCH + dt.timedelta(milliseconds=int(str(ms)))):%Y-%m-%d %H:%M:%S}"
    except (OverflowError, ValueError):
        return f"{ms} ms"
