"""The columns of a list that one person sees.

A cookie keeps them, for the list alone: it outlives the login, which a session does not, and needs no table and no
write.  It names columns and holds no data, so it need not be signed.  Permissions still decide what a column shows.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from django.contrib.admin.utils import label_for_field
from django.http import HttpResponseRedirect

if TYPE_CHECKING:
    from collections.abc import Sequence

    from django.http import HttpRequest

PARAMETER = "columns"
YEAR_SECONDS = 365 * 86_400


class Choice(NamedTuple):
    name: str
    label: str
    is_shown: bool


def name_of(column: Any) -> str:
    return column if isinstance(column, str) else str(column.__name__)


def asked(request: HttpRequest) -> bool:
    return request.method == "GET" and PARAMETER in request.GET


def response(admin: Any, request: HttpRequest) -> HttpResponseRedirect:
    """Keeps the columns that a form names, or forgets them if it names none, and leads to the list."""
    parameters = request.GET.copy()
    wanted = set(parameters.pop(PARAMETER))
    names = [name for name in map(name_of, admin.columns(request)) if name in wanted]
    answer = HttpResponseRedirect(f"{request.path}?{parameters.urlencode()}")
    if names:
        answer.set_cookie(
            _cookie(admin), ".".join(names), max_age=YEAR_SECONDS, path=request.path,
            secure=request.is_secure(), httponly=True, samesite="Lax",
        )  # fmt: skip
    else:
        answer.delete_cookie(_cookie(admin), path=request.path, samesite="Lax")
    return answer


def shown(admin: Any, request: HttpRequest) -> tuple[Any, ...]:
    """Returns the columns of the list: the first, which leads to the page of a row, and the chosen ones."""
    every: Sequence[Any] = admin.columns(request)
    names = request.COOKIES.get(_cookie(admin), "").split(".")
    kept = [column for column in every if name_of(column) in names]
    if not kept:
        kept = [column for column in every if name_of(column) in admin.default_columns]
    return (every[0], *(column for column in kept if column is not every[0]))


def choices(admin: Any, request: HttpRequest, displayed: Sequence[Any]) -> list[Choice]:
    """Returns the columns that can be shown or hidden: all but the first."""
    names = set(map(name_of, displayed))
    return [
        Choice(name_of(column), str(label_for_field(column, admin.model, admin)), name_of(column) in names)
        for column in admin.columns(request)[1:]
    ]


def _cookie(admin: Any) -> str:
    return f"pgqueue_columns_{admin.opts.model_name}"
