"""The worker processes."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from django.contrib import admin

from django_pgqueue.admin.parts import display
from django_pgqueue.admin.parts.database import now
from django_pgqueue.admin.parts.read_only import ReadOnlyAdmin
from django_pgqueue.models.tables import Worker
from django_pgqueue.monitoring.overview.clamped import Moment
from django_pgqueue.monitoring.overview.coverage import is_silent
from django_pgqueue.values.times import to_epoch_ms

if TYPE_CHECKING:
    import datetime as dt

    from django.db.models import QuerySet
    from django.http import HttpRequest
    from django.utils.safestring import SafeString


class WorkerColumns:
    """The columns of a worker at one moment."""

    def __init__(self, now: dt.datetime) -> None:
        self.now = now

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
        if worker.asleep_until is not None and to_epoch_ms(worker.asleep_until) > to_epoch_ms(self.now):
            return display.label("asleep", "blue")
        return display.label("awake", "green")

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
        shown = WorkerColumns(now(request))
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
        shown = WorkerColumns(now(request))
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
