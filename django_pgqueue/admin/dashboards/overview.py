"""The overview: waiting, running and failed messages, workers and throughput."""

from __future__ import annotations

import datetime as dt
import hashlib
from typing import TYPE_CHECKING, Any

from django.contrib import admin, messages
from django.core.exceptions import PermissionDenied
from django.db import InternalError, OperationalError, ProgrammingError
from django.http import HttpResponseNotAllowed, HttpResponseRedirect
from django.template.loader import render_to_string
from django.template.response import TemplateResponse
from django.urls import path
from django.utils.html import format_html
from django.utils.translation import gettext, gettext_lazy, pgettext_lazy

from django_pgqueue import control
from django_pgqueue.admin.dashboards import sparkline
from django_pgqueue.admin.parts import audit_log, database, direction, display, live, sidebar
from django_pgqueue.admin.parts.database import alias, may_see, now, url
from django_pgqueue.admin.parts.live import problem_of
from django_pgqueue.admin.parts.read_only import ReadOnlyAdmin
from django_pgqueue.exceptions import InvalidMessage, OutdatedQueue
from django_pgqueue.models.tables import Overview, QueueState
from django_pgqueue.monitoring import overview
from django_pgqueue.monitoring.overview import alerts, failures, formatting, recent
from django_pgqueue.monitoring.overview.overview import WINDOW_HOURS
from django_pgqueue.values.times import local

if TYPE_CHECKING:
    from django.http import HttpRequest, HttpResponse
    from django.utils.safestring import SafeString

    from django_pgqueue.monitoring.overview import QueueOverview
    from django_pgqueue.monitoring.overview.alerts import Alert
    from django_pgqueue.monitoring.overview.recent import Recent
    from django_pgqueue.monitoring.overview.throughput import Pulse
    from django_pgqueue.monitoring.overview.workers import Workers

LIVE = "admin/django_pgqueue/overview/live.html"
RUNS = 3
TASKS = 10


def hours() -> str:
    return gettext("the last {count} hours").format(count=WINDOW_HOURS)


def seen(request: HttpRequest) -> dict[str, Any]:
    """Returns all that the page shows, at one moment."""
    found = overview.taken(alias(), at=now(request))
    return {
        "at": found.at,
        "queues": [row(one, found.at, is_exact=found.is_exact) for one in found.queues],
        "more_queues": found.more_queues,
        "hours": hours(),
        "workers": workers(found.workers),
        "schedules": schedules(found) if may_see(request.user, "schedule") else [],
        "alerts": [alert(one, request) for one in alerts.of(found)],
        "tasks": [figures(one) for one in recent.tasks(found.at, using=alias())[:TASKS]],
        "counted": found.is_exact and all(one.is_exact for one in found.queues),
        "links": may_see(request.user, "message"),
        "suspended": str(found.suspended),
        "suspended_url": url("message_approvals"),
        "may_see_workers": may_see(request.user, "worker"),
        "history": may_see(request.user, "attempt"),
        "may_pause": bool(request.user.has_perm("django_pgqueue.change_queuestate")),
        "act_url": url("overview_act"),
    }


PAGES = {
    "message": ("message", "message_changelist", pgettext_lazy("of the queue", "Messages")),
    "attempt": ("attempt", "attempt_changelist", gettext_lazy("Failed attempts")),
    "worker": ("worker", "worker_changelist", gettext_lazy("Workers")),
    "schedule": ("schedule", "schedule_changelist", gettext_lazy("Schedules")),
    "queue": ("queuestate", "queuestate_changelist", gettext_lazy("Queues")),
}


ROWS = {"worker": gettext_lazy("Worker"), "schedule": gettext_lazy("Schedule")}
"""Pages of one row."""


def alert(one: Alert, request: HttpRequest) -> dict[str, Any]:
    """Returns an alert with its link, or with its button, for those who may use it."""
    found: dict[str, Any] = {"kind": one.kind, "text": one.text, "resume": one.paused_queue}
    if one.page is not None and may_see(request.user, PAGES[one.page][0]):
        _, name, label = PAGES[one.page]
        if one.page in ROWS and one.key is not None:
            return found | {"url": url(f"{one.page}_change", one.key), "label": ROWS[one.page]}
        return found | {"url": url(name, **one.filters), "label": label}
    return found


def row(one: QueueOverview, at: dt.datetime, *, is_exact: bool) -> dict[str, Any]:
    name, day_ago = one.name, local(at - failures.DAY)
    of_a_day = {"finished_at__range__gte_0": f"{day_ago:%Y-%m-%d}", "finished_at__range__gte_1": f"{day_ago:%H:%M:%S}"}
    return {
        "name": name,
        "shown": display.shortened(name, 40),
        "key": f"q{hashlib.sha256(name.encode()).hexdigest()[:12]}",
        "count": one.count,
        "failed": one.failures.of_a_day,
        "oldest": display.span(one.count.oldest),
        "paused": one.paused
        and {"since": display.moment(one.paused.since), "by": one.paused.by or gettext("somebody")},
        "no_worker": one.has_no_worker,
        "last_hour": one.last_hour and figures(one.last_hour),
        "ready_url": url("message_changelist", status="ready", queue=name),
        "scheduled_url": url("message_changelist", status="scheduled", queue=name),
        "running_url": url("message_changelist", status="running", queue=name),
        "failed_url": url("attempt_changelist", status__exact="failed", queue=name, **of_a_day),
        **(pictures(name, one.pulse, is_exact=is_exact) if one.pulse else {}),
    }


def figures(found: Recent) -> dict[str, str]:
    return {
        "name": display.breakable(display.shortened(found.task or gettext("raw messages"), 60)),
        "queue": display.shortened(found.queue, 40),
        "ended": display.number(found.ended),
        "failed": display.number(found.failed),
        "again": display.number(found.again),
        "waited": f"{display.span(found.wait_p50)} / {display.span(found.wait_p95)}",
        "ran": f"{display.span(found.run_p50)} / {display.span(found.run_p95)}",
        "run": display.span(found.run),
    }


def pictures(name: str, own: Pulse, *, is_exact: bool) -> dict[str, SafeString | str]:
    about = "" if is_exact else "~"
    key = f"s{hashlib.sha256(name.encode()).hexdigest()[:12]}"
    altogether, most = (f"{about}{display.number(round(figure))}" for figure in (sum(own.ended), max(own.ended)))
    waits = [wait for wait in own.waited_ms if wait is not None]
    longest = display.span(dt.timedelta(milliseconds=max(waits, default=0)))
    latest = display.span(own.latest_wait)
    return {
        "throughput": sparkline.bars(
            own.ended,
            key=f"{key}t",
            title=gettext("Attempts that ended, {queue}").format(queue=name),
            description=gettext("{count} in {hours}; at most {most} in 5 minutes.").format(
                count=altogether, hours=hours(), most=most
            ),
        ),
        "rate": gettext("{count} a minute").format(count=f"{about}{formatting.rate(own.a_minute)}"),
        "waits": sparkline.line(
            own.waited_ms,
            key=f"{key}w",
            title=gettext("Waiting time, {queue}").format(queue=name),
            description=gettext("Medians of 5 minutes over {hours}: {latest} at last, {longest} at most.").format(
                hours=hours(), latest=latest, longest=longest
            ),
        ),
        "latest_wait": latest,
    }


def workers(found: Workers) -> dict[str, Any]:
    return {
        "summary": summary(found),
        "more": found.busy + found.idle - len(found.shown),
        "list_url": url("worker_changelist"),
        "shown": [
            {
                "id": one.id,
                "url": url("worker_change", one.id),
                "key": f"w{hashlib.sha256(one.id.encode()).hexdigest()[:12]}",
                "hostname": one.hostname,
                "queues": gettext("all queues") if one.queues is None else display.shortened(", ".join(one.queues), 40),
                "version": one.version,
                "ordered": one.ordered and (gettext("paused") if one.ordered == "pause" else gettext("stopping")),
                "slots": display.of(one.used, one.slots),
                "runs": [
                    format_html(
                        "{} {}",
                        display.breakable(display.shortened(run.task or gettext("raw message"), 40)),
                        display.span(run.age),
                    )
                    for run in one.runs[:RUNS]
                ],
                "more_runs": max(0, one.used - RUNS),
            }
            for one in found.shown
        ],
    }


def summary(found: Workers) -> str:
    """Returns the sentence about all workers."""
    if found.busy + found.idle:
        slots = gettext("{busy} busy, {idle} idle, {used} of {slots} slots in use")
        parts = [slots.format(busy=found.busy, idle=found.idle, used=found.used_slots, slots=found.slots)]
    else:
        parts = [gettext("No worker runs: start manage.py qworker")]
    if found.listeners:
        parts.append(gettext("{count} listening for raw messages").format(count=found.listeners))
    if found.silent:
        parts.append(gettext("{count} silent").format(count=len(found.silent)))
    if found.versions:
        versions = ", ".join(f"{version} ({count})" for version, count in found.versions.items())
        parts.append(gettext("version {versions}").format(versions=versions))
    return "; ".join(parts)


def schedules(found: overview.Overview) -> list[dict[str, Any]]:
    return [
        {
            "name": schedule.name,
            "task": schedule.task,
            "at": display.moment(schedule.next_at),
            "far": display.relative(schedule.next_at, found.at),
            "url": url("schedule_change", schedule.name),
        }
        for schedule in found.schedules
    ]


@admin.register(Overview)
class OverviewAdmin(ReadOnlyAdmin):
    """The page, and its part that the browser polls."""

    ordering = ("name",)
    sortable_by = ()

    def get_urls(self) -> list[Any]:
        def view(function: Any) -> Any:
            return self.admin_site.admin_view(function)

        return [
            path("", view(self.changelist_view), name="django_pgqueue_overview_changelist"),
            path("live/", view(self.live_view), name="django_pgqueue_overview_live"),
            path("act/", view(self.act_view), name="django_pgqueue_overview_act"),
        ]

    def changelist_view(self, request: HttpRequest, extra_context: dict[str, Any] | None = None) -> HttpResponse:
        """Shows the overview; after a timeout the problem, and polls again."""
        if request.method not in {"GET", "HEAD"}:
            return HttpResponseNotAllowed(["GET", "HEAD"])
        self._check(request, "GET")
        with database.chosen(request):
            context = {
                **self.admin_site.each_context(request),
                "title": gettext("Overview"),
                "opts": self.opts,
                "media": self.media,
                "databases": database.choices(request.path),
                "live_url": url("overview_live"),
                **(extra_context or {}),
            }
            sidebar.lead_to_the_same_database(context)
        try:
            with database.about(request):
                context |= seen(request)
                page = TemplateResponse(request, "admin/django_pgqueue/overview/page.html", context)
                return direction.kept_in(page.render())
        except (OperationalError, InternalError, ProgrammingError, OutdatedQueue) as error:
            context["problem"] = problem_of(error)
        return TemplateResponse(request, "admin/django_pgqueue/overview/page.html", context)

    def live_view(self, request: HttpRequest) -> HttpResponse:
        if request.method != "GET":
            return HttpResponseNotAllowed(["GET"])
        self._check(request, "GET")
        return live.told(
            request,
            lambda: {"html": direction.kept(render_to_string(LIVE, seen(request), request))},
        )

    def act_view(self, request: HttpRequest) -> HttpResponse:
        """Pauses or resumes a queue."""
        if request.method != "POST":
            return HttpResponseNotAllowed(["POST"])
        self._check(request, "POST")
        return self.answered(request, lambda: self._act(request))

    def _act(self, request: HttpRequest) -> HttpResponse:
        name, action = request.POST.get("queue", ""), request.POST.get("action")
        try:
            if action == "pause":
                control.pause(name, by=audit_log.name_of_user(request), database=alias())
                self._done(request, name, gettext("Paused"))
            elif action == "resume" and control.resume(name, database=alias()):
                self._done(request, name, gettext("Resumed"))
        except InvalidMessage as error:
            self.message_user(request, str(error), messages.ERROR)
        return HttpResponseRedirect(self.list_url())

    def _done(self, request: HttpRequest, name: str, what: str) -> None:
        audit_log.written(request, QueueState, [name], f"{what}.")
        self.message_user(request, f"{what}: {name}.", messages.SUCCESS)

    def _check(self, request: HttpRequest, method: str) -> None:
        may_act = method == "GET" or request.user.has_perm("django_pgqueue.change_queuestate")
        if not self.has_view_permission(request) or not may_act:
            raise PermissionDenied
