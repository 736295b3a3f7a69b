"""The overview: what waits, what runs, what failed, who works and how fast."""

from __future__ import annotations

import datetime as dt
import hashlib
import time
from typing import TYPE_CHECKING, Any

from django.contrib import admin, messages
from django.core.exceptions import PermissionDenied
from django.db import OperationalError
from django.http import HttpResponseNotAllowed, HttpResponseRedirect, JsonResponse
from django.template.loader import render_to_string
from django.template.response import TemplateResponse
from django.urls import path
from psycopg.errors import QueryCanceled

from django_pgqueue import control
from django_pgqueue.admin import counts, database, display, log, pulse, snapshots, sparkline
from django_pgqueue.admin.database import STATEMENT_TIMEOUT, alias, now, url
from django_pgqueue.admin.expressions import Moment
from django_pgqueue.admin.readonly import ReadOnlyAdmin, may_see
from django_pgqueue.admin.service import MOST_WORKERS, SILENT_AFTER, Service
from django_pgqueue.exceptions import InvalidMessage
from django_pgqueue.fields import to_epoch_ms
from django_pgqueue.models import Overview, QueueState, Schedule, Worker

if TYPE_CHECKING:
    from django.http import HttpRequest, HttpResponse
    from django.utils.safestring import SafeString

    from django_pgqueue.admin.counts import Count
    from django_pgqueue.admin.pulse import Pulse, Pulses

SILENT_NAMED = 5
NEXT_SCHEDULES = 5
HOURS = f"the last {pulse.WINDOW // dt.timedelta(hours=1)} hours"


def seen(request: HttpRequest) -> dict[str, Any]:
    """All that the page shows, at one moment."""
    moment = now(request)
    pulses = pulse.taken(moment)
    held, failed = counts.held(moment), counts.failed(moment)
    states = paused()
    waiting, lanes = counts.waiting_queues(), counts.lanes()
    names = sorted({*waiting, *(lane.queue for lane in lanes), *held, *failed, *states, *pulses.queues})
    shown = names[: counts.QUEUES]
    found = counts.of(shown, moment, held, failed, lanes)
    service = Service.at(moment, using=alias())
    return {
        "at": moment,
        "queues": [row(name, found[name], pulses, service, states.get(name)) for name in shown],
        "more_queues": len(names) > counts.QUEUES,
        "exact": pulses.is_exact,
        "hours": HOURS,
        "workers": workers(moment),
        "schedules": schedules(moment) if may_see(request.user, "schedule") else [],
        "pinned": snapshots.pinned(),
        "capped": any(
            count.is_capped
            for one in found.values()
            for count in (one.ready, one.scheduled, one.after_others, one.running, one.failed)
        ),
        "links": may_see(request.user, "message"),
        "history": may_see(request.user, "attempt"),
        "may_pause": bool(request.user.has_perm("pgqueue.change_queuestate")),
        "act_url": url("overview_act"),
    }


def paused() -> dict[str, tuple[dt.datetime, str | None]]:
    states = QueueState.objects.using(alias()).filter(paused_at__isnull=False).order_by("name")
    rows = states.values_list("name", Moment("paused_at"), "paused_by")[: counts.QUEUES]
    return {name: (since, by) for name, since, by in rows}


def row(
    name: str, count: Count, pulses: Pulses, service: Service, state: tuple[dt.datetime, str | None] | None
) -> dict[str, Any]:
    own = pulses.queues.get(name)
    return {
        "name": name,
        "shown": display.shortened(name, 40),
        "key": f"q{hashlib.sha256(name.encode()).hexdigest()[:12]}",
        "count": count,
        "oldest": display.NOTHING if count.oldest is None else display.span(count.oldest),
        "paused": None if state is None else {"since": display.moment(state[0]), "by": state[1] or "somebody"},
        "no_worker": count.tasks_are_ready and not service.serves(name),
        "ready_url": url("message_changelist", status="ready", queue=name),
        "scheduled_url": url("message_changelist", status="scheduled", queue=name),
        "running_url": url("message_changelist", status="running", queue=name),
        "failed_url": url("attempt_changelist", status__exact="failed", queue=name),
        **(pictures(name, own, is_exact=pulses.is_exact) if own else {}),
    }


def pictures(name: str, own: Pulse, *, is_exact: bool) -> dict[str, SafeString | str]:
    about = "" if is_exact else "about "
    key = f"s{hashlib.sha256(name.encode()).hexdigest()[:12]}"
    altogether = f"{about}{display.number(round(sum(own.ended)))} in {HOURS}"
    waits = [wait for wait in own.waited_ms if wait is not None]
    longest = display.span(dt.timedelta(milliseconds=max(waits, default=0)))
    latest = display.span(dt.timedelta(milliseconds=waits[-1])) if waits else display.NOTHING
    rate = f"{own.a_minute:,.0f}" if own.a_minute >= 10 or not own.a_minute else f"{own.a_minute:.1f}"
    return {
        "throughput": sparkline.bars(
            own.ended,
            key=f"{key}t",
            title=f"Attempts that ended, {name}",
            description=f"{altogether}; at most {about}{display.number(round(max(own.ended)))} in 5 minutes.",
        ),
        "rate": f"{'' if is_exact else '≈ '}{rate.replace(',', display.NARROW)} a minute",
        "waits": sparkline.line(
            own.waited_ms,
            key=f"{key}w",
            title=f"Time that they had waited, {name}",
            description=f"Medians of 5 minutes over {HOURS}: {latest} at last, {longest} at most.",
        ),
        "latest_wait": latest,
    }


def workers(moment: dt.datetime) -> dict[str, Any]:
    rows = list(
        Worker.objects.using(alias())
        .order_by("-seen_at")
        .values_list("id", "slots", "asleep_until", Moment("seen_at"))[:MOST_WORKERS]
    )
    alive = [one for one in rows if one[3] > moment - SILENT_AFTER]
    silent = [one for one in rows if one[3] <= moment - SILENT_AFTER]
    asleep = [one for one in alive if one[2] is not None and to_epoch_ms(one[2]) > to_epoch_ms(moment)]
    return {
        "awake": len(alive) - len(asleep),
        "asleep": len(asleep),
        "slots": sum(one[1] for one in alive),
        "silent": len(silent),
        "lost": [
            {"id": one[0], "for": display.span(moment - one[3]), "url": url("worker_change", one[0])}
            for one in silent[:SILENT_NAMED]
        ],
    }


def schedules(moment: dt.datetime) -> list[dict[str, Any]]:
    coming = Schedule.objects.using(alias()).filter(paused_at__isnull=True).order_by("next_at", "name")
    return [
        {
            "name": schedule.name,
            "task": schedule.task,
            "at": display.moment(schedule.next_at),
            "far": display.relative(schedule.next_at, moment),
            "url": url("schedule_change", schedule.name),
        }
        for schedule in coming.only("name", "task", "next_at")[:NEXT_SCHEDULES]
    ]


@admin.register(Overview)
class OverviewAdmin(ReadOnlyAdmin):
    """One page, and the part of it that is asked for again and again."""

    ordering = ("name",)
    sortable_by = ()

    def get_urls(self) -> list[Any]:
        def view(function: Any) -> Any:
            return self.admin_site.admin_view(function)

        return [
            path("", view(self.changelist_view), name="pgqueue_overview_changelist"),
            path("live/", view(self.live_view), name="pgqueue_overview_live"),
            path("act/", view(self.act_view), name="pgqueue_overview_act"),
        ]

    def has_change_permission(self, request: HttpRequest, obj: Any = None) -> bool:  # noqa: ARG002
        return False

    def changelist_view(self, request: HttpRequest, extra_context: dict[str, Any] | None = None) -> HttpResponse:
        """What can not be had in time is told, and asked for again by the page."""
        if request.method not in {"GET", "HEAD"}:
            return HttpResponseNotAllowed(["GET", "HEAD"])
        self._check(request, "GET")
        with database.about(request):
            context = {
                **self.admin_site.each_context(request),
                "title": "Overview",
                "opts": self.opts,
                "media": self.media,
                "databases": database.choices(request.path),
                "live_url": url("overview_live"),
                **(extra_context or {}),
            }
        try:
            with database.about(request):
                context |= seen(request)
                return TemplateResponse(request, "admin/pgqueue/overview/page.html", context).render()
        except OperationalError as error:
            context["problem"] = told(error)
        return TemplateResponse(request, "admin/pgqueue/overview/page.html", context)

    def live_view(self, request: HttpRequest) -> HttpResponse:
        if request.method != "GET":
            return HttpResponseNotAllowed(["GET"])
        self._check(request, "GET")
        begun = time.monotonic()
        try:
            with database.about(request):
                html = render_to_string("admin/pgqueue/overview/live.html", seen(request), request)
        except OperationalError as error:
            return JsonResponse({"problem": told(error)}, status=503)
        return JsonResponse({"html": html, "took_ms": round((time.monotonic() - begun) * 1000)})

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
                control.pause(name, by=request.user.get_username(), database=alias())
                self._done(request, name, "Paused")
            elif action == "resume" and control.resume(name, database=alias()):
                self._done(request, name, "Resumed")
        except InvalidMessage as error:
            self.message_user(request, str(error), messages.ERROR)
        return HttpResponseRedirect(self.list_url())

    def _done(self, request: HttpRequest, name: str, what: str) -> None:
        log.written(request, QueueState, [name], f"{what}.")
        self.message_user(request, f"{what}: {name}.", messages.SUCCESS)

    def _check(self, request: HttpRequest, method: str) -> None:
        may_act = method == "GET" or request.user.has_perm("pgqueue.change_queuestate")
        if not self.has_view_permission(request) or not may_act:
            raise PermissionDenied


def told(error: OperationalError) -> str:
    if not isinstance(error.__cause__, QueryCanceled):
        raise error
    return f"That would have taken longer than {STATEMENT_TIMEOUT.rstrip('s')} seconds, so it was stopped."
