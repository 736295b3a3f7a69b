"""The worker processes."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from django.contrib import admin
from django.utils.html import format_html

from django_pgqueue.admin.parts import display
from django_pgqueue.admin.parts.database import alias, now, once
from django_pgqueue.admin.parts.read_only import ReadOnlyAdmin
from django_pgqueue.models.tables import Worker
from django_pgqueue.monitoring.overview.clamped import Moment
from django_pgqueue.monitoring.overview.coverage import is_silent
from django_pgqueue.monitoring.overview.held import HeldCounts

if TYPE_CHECKING:
    import datetime as dt

    from django.db.models import QuerySet
    from django.http import HttpRequest
    from django.utils.safestring import SafeString


class WorkerColumns:
    """The columns of a worker at one moment."""

    def __init__(self, now: dt.datetime, held: HeldCounts) -> None:
        self.now = now
        self.held = held

    @classmethod
    def of(cls, request: HttpRequest) -> WorkerColumns:
        moment = now(request)
        held: HeldCounts = once(request, "held", lambda: HeldCounts.at(moment, using=alias()))
        return cls(moment, held)

    @admin.display(description="queues")
    def queues(self, worker: Worker) -> SafeString | str:
        served = "all" if worker.queues is None else names(worker.queues)
        if not worker.tasks:
            served += " (raw messages)"
        return display.shortened(
            f"{served} but {names(worker.exclude_queues)}" if worker.exclude_queues else served, 120
        )

    @admin.display(description="state")
    def state(self, worker: Worker) -> SafeString:
        seen_at = self._seen(worker)
        if is_silent(seen_at, worker.silent_until, self.now):
            return display.label(f"not seen for {display.span(self.now - seen_at)}", "red")
        if not self.held.is_busy(worker.id, worker.asleep_until, self.now):
            return display.label("idle", "blue")
        slots = f"{self.held.used({worker.id: worker.slots})} of {display.number(worker.slots)} slots"
        return format_html("{}{}", display.label("busy", "green"), display.line(slots) if worker.tasks else "")

    @admin.display(description="problem")
    def problem(self, worker: Worker) -> SafeString | str:
        return display.shortened(worker.problem or "", 120)

    @admin.display(description="seen at")
    def seen_at(self, worker: Worker) -> SafeString | str:
        return display.moment(self._seen(worker))

    @admin.display(description="started at")
    def started_at(self, worker: Worker) -> SafeString | str:
        return display.moment(getattr(worker, "started", None))

    def _seen(self, worker: Worker) -> dt.datetime:
        seen: dt.datetime = getattr(worker, "seen", self.now)
        return seen


def names(queues: list[str | None]) -> str:
    return ", ".join(str(queue) for queue in queues) or "none"


@admin.register(Worker)
class WorkerAdmin(ReadOnlyAdmin):
    ordering = ("-seen_at", "id")
    sortable_by = ()

    def get_list_display(self, request: HttpRequest) -> tuple[Any, ...]:
        shown = WorkerColumns.of(request)
        return (
            "id",
            "hostname",
            "pid",
            "slots",
            "version",
            shown.queues,
            shown.state,
            shown.problem,
            shown.seen_at,
            shown.started_at,
        )

    def get_fieldsets(self, request: HttpRequest, obj: Worker | None = None) -> Any:  # noqa: ARG002
        shown = WorkerColumns.of(request)
        return [
            (
                None,
                {
                    "fields": [
                        "id",
                        "hostname",
                        "pid",
                        "slots",
                        "version",
                        shown.queues,
                        shown.state,
                        "problem",
                        shown.seen_at,
                        shown.started_at,
                    ]
                },
            )
        ]

    def rows(self, request: HttpRequest) -> QuerySet[Any]:
        found: QuerySet[Any] = (
            self.get_queryset(request)
            .defer("seen_at", "started_at")
            .annotate(seen=Moment("seen_at"), started=Moment("started_at"))
        )
        return found
