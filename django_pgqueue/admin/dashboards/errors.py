"""The errors of the history, in groups: those of one class that come from one function, whatever the line."""

from __future__ import annotations

import datetime as dt
import hashlib
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from django.contrib import messages
from django.core.exceptions import PermissionDenied
from django.http import HttpResponseNotAllowed, HttpResponseRedirect
from django.template.response import TemplateResponse
from django.utils.translation import gettext, gettext_lazy

from django_pgqueue import control
from django_pgqueue.admin.dashboards import sparkline
from django_pgqueue.admin.edit import ask_page
from django_pgqueue.admin.parts import database, display, queries
from django_pgqueue.admin.parts.content import ErrorTexts
from django_pgqueue.admin.parts.database import now, url
from django_pgqueue.admin.parts.expressions import SHORT_LENGTH
from django_pgqueue.admin.parts.read_only import may_see_content
from django_pgqueue.exceptions import InvalidEdit, UnknownTask
from django_pgqueue.tasks.sensitive import HIDDEN
from django_pgqueue.values.times import midnight_before

if TYPE_CHECKING:
    from collections.abc import Iterable

    from django.http import HttpRequest, HttpResponse

    from django_pgqueue.admin.parts.read_only import ReadOnlyAdmin

MOST = 5_000
"""At most this many of the newest errors are read."""
GROUPS = 50
BARS = 24
TRACEBACK_END = 4_000
PERIODS = {
    "1h": (gettext_lazy("the last hour"), dt.timedelta(hours=1)),
    "24h": (gettext_lazy("the last 24 hours"), dt.timedelta(hours=24)),
    "7d": (gettext_lazy("the last 7 days"), dt.timedelta(days=7)),
    "30d": (gettext_lazy("the last 30 days"), dt.timedelta(days=30)),
}
USUAL = "24h"
UNKNOWN_TASK = f"{UnknownTask.__module__}.{UnknownTask.__qualname__}"
DAY = dt.timedelta(days=1)

# The place is the last line of code in the traceback.  The range starts at midnight: the scan skips no row.
NEWEST = r"""
select e.id, e.error_class, e.task, e.queue, e.status, e.finished_at, e.message,
       substring(e.trace from E'.*File "([^"]+", line [0-9]+, in [^\n]+)'),
       pgqueue_attempt_error_group(e.error_class, e.message, e.trace)
from (
    select a.id, a.error_class, a.task, a.queue, a.status, a.finished_at, left(a.error_message, %(short)s) as message,
           right(a.traceback, %(end)s) as trace
    from pgqueue_attempt a
    where a.status in ('failed', 'retried', 'lost') and a.finished_at >= %(day)s and a.finished_at < %(until)s
    order by a.id desc limit %(most)s
) as e
where e.finished_at >= %(since)s and (%(queue)s::text is null or e.queue = %(queue)s)
"""


# The workers that live run the newest deploy since then.
DEPLOYED = """
select w.version, min(w.started_at) from pgqueue_worker w
where w.version is not null
group by w.version order by pgqueue_version_key(w.version) desc limit 1
"""


@dataclass(slots=True)
class ErrorGroup:
    """The errors of one class in one place."""

    key: str | None
    """None: the texts of its task's errors are hidden, and so is what groups them."""

    error_class: str | None
    name: str
    """The class in words."""

    place: str
    newest_id: int
    message: str
    last: dt.datetime
    first: dt.datetime
    count: int = 0
    given_up: int = 0
    tasks: set[str] = field(default_factory=set)
    over_time: list[int] = field(default_factory=lambda: [0] * BARS)


def view(admin: ReadOnlyAdmin, request: HttpRequest) -> HttpResponse:
    if request.method not in {"GET", "HEAD", "POST"}:
        return HttpResponseNotAllowed(["GET", "HEAD", "POST"])
    if not admin.has_view_permission(request):
        raise PermissionDenied
    if request.method == "POST":
        if not may_enqueue_again(request):
            raise PermissionDenied
        return admin.answered(request, lambda: _enqueue_again(admin, request))
    return admin.answered(request, lambda: _page(admin, request))


def may_enqueue_again(request: HttpRequest) -> bool:
    """Whether the user may enqueue a group again.  A group is found by what its errors say, so it needs to see that."""
    return ask_page.may(request.user, "enqueue_again") and may_see_content(request)


def _enqueue_again(admin: ReadOnlyAdmin, request: HttpRequest) -> HttpResponse:
    which = control.Filter(error_group=request.POST.get("group", ""))
    try:
        return ask_page.asked(admin, request, "enqueue_again", which, url("attempt_errors"))
    except InvalidEdit as error:
        admin.message_user(request, str(error), messages.ERROR)
        return HttpResponseRedirect(url("attempt_errors"))


@dataclass(frozen=True, slots=True)
class Deploy:
    """The newest version that a worker runs, and since when."""

    version: str
    since: dt.datetime

    def is_new(self, group: ErrorGroup) -> bool:
        return group.first >= self.since


def newest_deploy(groups: list[ErrorGroup]) -> Deploy | None:
    """Returns None where no worker has a version, or where no error is older than it: nothing tells what is new."""
    for version, since in queries.rows(DEPLOYED):
        if any(group.first < since for group in groups):
            return Deploy(version, since)
    return None


def _page(admin: ReadOnlyAdmin, request: HttpRequest) -> HttpResponse:
    period = request.GET.get("period", USUAL)
    period_words, span = PERIODS.get(period, PERIODS[USUAL])
    words = str(period_words)
    queue = request.GET.get("queue") or None
    moment = now(request)
    groups, capped = found(moment, span, queue, texts=ErrorTexts.of(request))
    deploy = newest_deploy(groups)
    context = {
        **admin.admin_site.each_context(request),
        "title": gettext("Errors"),
        "opts": admin.opts,
        "media": admin.media,
        "databases": database.choices(request.path),
        "list_url": admin.list_url(),
        "words": words,
        "queue": queue,
        "periods": [
            {
                "words": name,
                "url": url("attempt_errors", period=key, **({"queue": queue} if queue else {})),
                "selected": span == length,
            }
            for key, (name, length) in PERIODS.items()
        ],
        "groups": [_shown(group, span, words, deploy, linked=may_see_content(request)) for group in groups[:GROUPS]],
        "again_url": url("attempt_errors") if may_enqueue_again(request) else "",
        "more": max(0, len(groups) - GROUPS),
        "errors": sum(group.count for group in groups),
        "capped_at": display.number(MOST) if capped else "",
    }
    return TemplateResponse(request, "admin/django_pgqueue/errors.html", context)


def found(
    moment: dt.datetime, span: dt.timedelta, queue: str | None = None, *, texts: ErrorTexts
) -> tuple[list[ErrorGroup], bool]:
    """Returns the groups, the largest first, and whether older errors of the period were left out."""
    since = moment - span
    asked: dict[str, Any] = {
        "since": since,
        "day": midnight_before(since),
        "until": moment + DAY,
        "queue": queue,
        "most": MOST + 1,
        "short": SHORT_LENGTH,
        "end": TRACEBACK_END,
    }
    rows = queries.rows(NEWEST, asked)
    groups = _grouped(rows[:MOST], since, span, texts)
    return sorted(groups, key=lambda group: (-group.count, -group.newest_id)), len(rows) > MOST


def _grouped(
    rows: Iterable[tuple[Any, ...]], since: dt.datetime, span: dt.timedelta, texts: ErrorTexts
) -> list[ErrorGroup]:
    """Groups rows, newest first.  A traceback ends with the message, which the place may quote: both are hidden."""
    groups: dict[tuple[str, str], ErrorGroup] = {}
    raw = gettext("raw messages")
    for pk, error_class, task, _, status, finished_at, message, place, key in rows:
        # An unknown task is raised by this package, and not by the place where the task stands.
        place_of_task = None if error_class == UNKNOWN_TASK else _tidy(place)
        name, where = error_class or gettext("an error without a class"), place_of_task or task or raw
        if texts.hides(task):
            message, where, key = HIDDEN if message else None, task or raw, None  # noqa: PLW2901
        group = groups.get((name, key or where))
        if group is None:
            group = ErrorGroup(key, error_class, name, where, pk, message or "", finished_at, finished_at)
            groups[name, key or where] = group
        group.count += 1
        group.given_up += status == "failed"
        group.first = min(group.first, finished_at)
        if task:
            group.tasks.add(task)
        group.over_time[min(BARS - 1, max(0, int((finished_at - since) / span * BARS)))] += 1
    return list(groups.values())


def _tidy(place: str | None) -> str | None:
    r"""
    >>> _tidy('/srv/site/shop/tasks.py", line 12, in send')
    'shop/tasks.py, line 12, in send'
    """
    if place is None:
        return None
    path, _, where = place.partition('"')
    return "/".join(path.replace("\\", "/").rsplit("/", 2)[-2:]) + where


def _shown(group: ErrorGroup, span: dt.timedelta, words: str, deploy: Deploy | None, *, linked: bool) -> dict[str, Any]:
    """``linked``: the user may filter by the group, and not by the class alone."""
    key = f"e{hashlib.sha256(f'{group.name} {group.key or group.place}'.encode()).hexdigest()[:12]}"
    by = {"error_group": group.key if linked else None, "error_class": group.error_class}
    filters = [(name, value) for name, value in by.items() if value][:1]
    return {
        "name": group.name.rpartition(".")[2],
        "error_class": group.name,
        "place": group.place,
        "message": display.shortened(group.message, 160),
        "count": display.number(group.count),
        "given_up": display.number(group.given_up),
        "tasks": [display.breakable(task) for task in sorted(group.tasks - {group.place})[:5]],
        "first": display.moment(group.first),
        "last": display.moment(group.last),
        "picture": sparkline.bars(
            group.over_time,
            key=key,
            title=gettext("{what} over {words}").format(what=group.name, words=words),
            description=gettext("At most {count} in {span}.").format(
                count=max(group.over_time), span=display.span(span / BARS)
            ),
        ),
        "newest_url": url("attempt_change", group.newest_id),
        "list_url": url("attempt_changelist", **dict(filters)) if filters else "",
        "key": group.key,
        "is_new_since": deploy.version if deploy is not None and deploy.is_new(group) else "",
    }
