"""The rows of a list as a file: all that its filters find, up to the number that the list counts."""

from __future__ import annotations

import csv
import datetime as dt
import html
import io
import json
from typing import TYPE_CHECKING, Any

from django.contrib.admin.options import IncorrectLookupParameters
from django.contrib.admin.utils import lookup_field
from django.core.exceptions import PermissionDenied
from django.http import HttpResponse
from django.utils.html import strip_tags

from django_pgqueue.admin.parts import chosen_columns, database
from django_pgqueue.admin.parts.display import NOTHING
from django_pgqueue.values.times import aware

if TYPE_CHECKING:
    from collections.abc import Iterator

    from django.http import HttpRequest, QueryDict

    from django_pgqueue.admin.parts.change_list import CappedChangeList

PARAMETER = "download"
CONTENT_TYPES = {"csv": "text/csv; charset=utf-8", "json": "application/json"}
ROWS = 1000
"""Rows that one query fetches."""

VALUES = {
    "message_link": "message_id",
    "created_at": "created",
    "emitted_at": "emitted",
    "started_at": "started",
    "finished_at": "finished",
    "seen_at": "seen",
    "paused_at": "paused",
    "asked_at": "asked_for",
    "last": "last_slot",
    **{
        name: name
        for name in ("id", "name", "task", "queue", "channel", "worker", "priority", "dequeue_at", "next_at", "took")
    },
}
"""Columns with the attribute that has their value, whole and unformatted.  Of all others the file has the text of the
page, so that nobody reads in a file what the page hides from him."""
NAMES = {"message_link": "message_id", "number": "attempt", "took": "took_seconds"}
LAST_YEAR = 9999
"""A time of this year stands for one that is out of reach: the page says in words what it means."""
FORMULA = ("=", "+", "-", "@", "\t", "\r")


def asked(request: HttpRequest) -> str | None:
    kind = request.GET.get(PARAMETER)
    return kind if request.method == "GET" and kind in CONTENT_TYPES else None


def response(admin: Any, request: HttpRequest, kind: str) -> HttpResponse:
    if not admin.has_view_or_change_permission(request):
        raise PermissionDenied
    request.GET = of_list(request)  # type: ignore[assignment]
    try:
        found: CappedChangeList = admin.get_changelist_instance(request)
    except IncorrectLookupParameters:
        return database.without_parameters(request)
    columns = [column for column in found.list_display if column != "action_checkbox"]
    names = [name_of(column) for column in columns]
    rows = [[value(admin, row, column) for column in columns] for row in every_row(found)]
    capped = found.paginator.is_capped
    text = as_csv(names, rows) if kind == "csv" else as_json(names, rows, capped=capped)
    name = f"{found.opts.model_name}{f'-first-{len(rows)}' if capped else ''}.{kind}"
    answer = HttpResponse(text, content_type=CONTENT_TYPES[kind])
    answer["Content-Disposition"] = f'attachment; filename="{name}"'
    answer["Cache-Control"] = "no-store"
    return answer


def list_url(request: HttpRequest) -> str:
    """Returns the URL of the list whose rows a download asks for."""
    return f"{request.path}?{of_list(request).urlencode()}"


def of_list(request: HttpRequest) -> QueryDict:
    parameters = request.GET.copy()
    for name in (PARAMETER, "p"):
        parameters.pop(name, None)
    return parameters


def every_row(found: CappedChangeList) -> Iterator[Any]:
    paginator = found.paginator
    for begin in range(0, paginator.count, ROWS):
        keys = paginator.keys[begin : min(begin + ROWS, paginator.count)]
        rows = {row.pk: row for row in paginator.rows.order_by().filter(pk__in=keys)}
        yield from (rows[key] for key in keys if key in rows)


def name_of(column: Any) -> str:
    name = chosen_columns.name_of(column)
    return NAMES.get(name, name)


def value(admin: Any, row: Any, column: Any) -> Any:
    name = chosen_columns.name_of(column)
    attribute = VALUES.get(name)
    rests = attribute == "next_at" and row.__dict__.get("paused") is not None
    if attribute in row.__dict__ and not rests:
        known = row.__dict__[attribute]
        if isinstance(known, dt.timedelta):
            return known.total_seconds()
        if not isinstance(known, dt.datetime):
            return known
        if known.year < LAST_YEAR:
            return aware(known).isoformat()
    shown = lookup_field(column, row, admin)[2]
    if shown is None or isinstance(shown, bool | int | float):
        return shown
    if isinstance(shown, dt.datetime):
        return aware(shown).isoformat()
    if hasattr(shown, "__html__"):
        shown = html.unescape(strip_tags(str(shown).replace("<", " <")))
    text = " ".join(str(shown).split())
    return None if text == NOTHING else text


def as_csv(names: list[str], rows: list[list[Any]]) -> str:
    """A text that begins like a formula gets an apostrophe: spreadsheets run it otherwise."""
    file = io.StringIO()
    writer = csv.writer(file)
    writer.writerow(names)
    for row in rows:
        writer.writerow([f"'{cell}" if isinstance(cell, str) and cell.startswith(FORMULA) else cell for cell in row])
    return file.getvalue()


def as_json(names: list[str], rows: list[list[Any]], *, capped: bool) -> str:
    """``complete`` is false where the filters find more rows than the list counts."""
    found = [dict(zip(names, row, strict=True)) for row in rows]
    return json.dumps({"complete": not capped, "rows": found}, ensure_ascii=False)
