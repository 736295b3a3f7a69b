"""The filters of the message list as the filter of an edit, and an edit's filter in words."""

from __future__ import annotations

import datetime as dt
from typing import TYPE_CHECKING, Any

from django.utils import timezone

from django_pgqueue.admin.parts import filters
from django_pgqueue.admin.parts.read_only import is_id
from django_pgqueue.control import Filter
from django_pgqueue.exceptions import InvalidEdit
from django_pgqueue.values.times import EPOCH

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from django.contrib.admin.views.main import ChangeList
    from django.http import HttpRequest

RANGES = {"dequeue_at": "run_at", "created_at": "created"}


def of_list(listed: ChangeList, request: HttpRequest) -> Filter:
    """Returns what the list shows as the filter of an edit.  Raises ``InvalidEdit`` for what no edit can have."""
    found: dict[str, Any] = {}
    term = listed.query.strip()
    if is_id(term):
        message = f"“{term}” finds one message: use its page, or the actions of the list."
        raise InvalidEdit(message)
    if term:
        found["task_contains"] = term
    for spec in listed.filter_specs:
        found |= dict(_criterion(spec, request))
    return Filter(**found)


def _criterion(spec: Any, request: HttpRequest) -> Iterator[tuple[str, Any]]:
    match spec:
        case filters.MomentRangeFilter():
            if spec.used_parameters:
                if not spec.form.is_valid():
                    message = f"The range of {spec.title} is invalid."
                    raise InvalidEdit(message)
                for name, value in spec._make_query_filter(request, spec.form.cleaned_data).items():  # noqa: SLF001
                    column, _, how = name.rpartition("__")
                    yield f"{RANGES[column.removesuffix('__range')]}_{'from' if how == 'gte' else 'until'}", value
        case filters.TaskFilter() if spec.value() == filters.TaskFilter.RAW:
            yield "raw", True
        case filters.ArgumentFilter() if spec.value() is not None:
            yield "argument", _argument(spec)
        case filters.StatusFilter() | filters.NameFilter() if spec.value() is not None:
            yield str(spec.parameter_name), str(spec.value())


def _argument(spec: filters.ArgumentFilter) -> str | float | bool:
    if not spec.sees:
        message = "You may not see content, and so you cannot filter by it."
        raise InvalidEdit(message)
    return filters.argument(str(spec.value()))


def words(found: Mapping[str, Any]) -> list[str]:
    """Returns the criteria of an edit for people, given as JSON.

    >>> words({"queue": "mail", "raw": True, "priority_from": 5})
    ['queue mail', 'raw messages', 'priority from 5']
    """
    return [_worded(name, value) for name, value in found.items()]


def _worded(name: str, value: Any) -> str:
    if name == "raw":
        return "raw messages" if value else "tasks"
    label = name.replace("_", " ")
    if name.endswith(("_from", "_until")) and not name.startswith("priority"):
        return f"{label} {moment(value)}"
    return f"{label} {value}"


def moment(ms: object) -> str:
    try:
        return f"{timezone.localtime(EPOCH + dt.timedelta(milliseconds=int(str(ms)))):%Y-%m-%d %H:%M:%S}"
    except (OverflowError, ValueError):
        return f"{ms} ms"
