"""An open list asks again for its rows and for how many new ones came, and an open page for what it shows."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

from django.contrib.admin.options import IncorrectLookupParameters
from django.contrib.admin.templatetags.admin_list import items_for_result
from django.core.exceptions import PermissionDenied, ValidationError
from django.db import DataError, InternalError, OperationalError, ProgrammingError
from django.http import HttpResponseRedirect, JsonResponse
from django.template.response import SimpleTemplateResponse

from django_pgqueue.admin.parts import database, direction, refusal
from django_pgqueue.exceptions import OutdatedQueue

if TYPE_CHECKING:
    from collections.abc import Callable

    from django.http import HttpRequest, HttpResponse

    from django_pgqueue.admin.parts.change_list import CappedChangeList

PARAMETER = "live"
"""Names the rows that a list shows, in their order; an empty one asks for a list without rows.  Any value asks
for a page."""


def asked(request: HttpRequest) -> bool:
    return request.method == "GET" and PARAMETER in request.GET


def response(admin: Any, request: HttpRequest) -> JsonResponse:
    """Returns the cells of the rows, null for those that are gone, as JSON.  It costs what the list costs."""
    if not admin.has_view_or_change_permission(request):
        raise PermissionDenied
    shown = [key for key in keys(request) if key][: admin.list_per_page]

    def look() -> dict[str, Any]:
        found: CappedChangeList = admin.get_changelist_instance(request)
        rows = as_they_are(found, shown)
        return {
            "rows": [cells(found, rows[key]) if key in rows else None for key in shown],
            "fresh": fresh(found, shown),
        }

    return told(request, look)


def cells(found: CappedChangeList, row: Any) -> list[str]:
    return [direction.kept(cell) for cell in items_for_result(found, row, None)]


def page_url(request: HttpRequest) -> str:
    """Returns the address, relative to an open page, that it asks."""
    parameters = request.GET.copy()
    parameters[PARAMETER] = "page"
    return f"?{parameters.urlencode()}"


def page(request: HttpRequest, answer: Callable[[], HttpResponse]) -> JsonResponse:
    """Returns the page as JSON or, when its row is gone, where the page leads.  It costs what the page costs."""
    keys(request)

    def look() -> dict[str, Any]:
        found = answer()
        if isinstance(found, HttpResponseRedirect):
            return {"gone": found.url}
        if isinstance(found, SimpleTemplateResponse):
            found.render()
        return {"page": direction.kept(found.content.decode())}

    return told(request, look)


def keys(request: HttpRequest) -> list[str]:
    """Takes what was asked for out of the request: the rest is what the list or the page knows."""
    parameters = request.GET.copy()
    found: list[str] = parameters.pop(PARAMETER)
    request.GET = parameters  # type: ignore[assignment]
    return found


def told(request: HttpRequest, look: Callable[[], dict[str, Any]]) -> JsonResponse:
    """Returns what a look finds, and how long it took; or a sentence about why it found nothing.

    The messages of a look, such as that about an invalid filter, stand on the open page, and the next page has none of
    them.  Where the row is gone, the next page is the one that says so.
    """
    begun, before, found = time.monotonic(), len(said(request)), dict[str, Any]()
    try:
        with database.about(request):
            found = look()
    except IncorrectLookupParameters as error:
        return JsonResponse({"problem": str(error)}, status=400)
    except (OperationalError, InternalError, DataError, ProgrammingError, OutdatedQueue) as error:
        return JsonResponse({"problem": problem_of(error)}, status=400 if isinstance(error, DataError) else 503)
    finally:
        if "gone" not in found:
            del said(request)[before:]
    return JsonResponse(found | {"took_ms": round((time.monotonic() - begun) * 1000)})


def said(request: HttpRequest) -> list[Any]:
    """Returns the messages of this request, which the next page shows.  To take them out again is to not say them."""
    # Django has no public way; a storage of the project's own may keep them elsewhere.
    found: list[Any] = getattr(getattr(request, "_messages", None), "_queued_messages", [])
    return found


def as_they_are(found: CappedChangeList, shown: list[str]) -> dict[str, Any]:
    """Returns the rows by their keys, those that the filters do not find any more among them."""
    rows = {str(row.pk): row for row in found.result_list}
    others = []
    for key in shown:
        try:
            others += [] if key in rows else [found.opts.pk.to_python(key)]
        except ValidationError:
            continue
    if others:
        rows |= {str(row.pk): row for row in found.paginator.rows.order_by().filter(pk__in=others)}
    return rows


def fresh(found: CappedChangeList, shown: list[str]) -> int:
    """Returns how many rows of the first page are new: what moved up from the next page is not."""
    if found.page_num > 1:
        return 0
    now = [str(row.pk) for row in found.result_list]
    known = set(shown)
    if len(shown) >= found.list_per_page and any(key in known for key in now):
        now = now[: max(place for place, key in enumerate(now) if key in known)]
    return sum(key not in known for key in now)


def problem_of(error: Exception) -> str:
    """Returns the words for an error that the page can show; raises others."""
    words = str(error) if isinstance(error, OutdatedQueue) else refusal.why(error)
    if not words:
        raise error
    return words
