"""The worker processes."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from django.contrib import admin, messages
from django.utils.html import format_html
from django.utils.translation import gettext, gettext_lazy

from django_pgqueue import control
from django_pgqueue.admin.parts import actions as parts_actions, audit_log, display
from django_pgqueue.admin.parts.database import alias, now, once
from django_pgqueue.admin.parts.read_only import ReadOnlyAdmin
from django_pgqueue.models.tables import Worker
from django_pgqueue.monitoring.overview.clamped import Moment
from django_pgqueue.monitoring.overview.coverage import is_silent, silence
from django_pgqueue.monitoring.overview.held import HeldCounts

if TYPE_CHECKING:
    import datetime as dt

    from django.db.models import Model, QuerySet
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

    @admin.display(description=gettext_lazy("queues"))
    def queues(self, worker: Worker) -> SafeString | str:
        served = gettext("all") if worker.queues is None else names(worker.queues)
        if not worker.tasks:
            served = gettext("{queues} (raw messages)").format(queues=served)
        if worker.exclude_queues:
            served = gettext("{queues} but {others}").format(queues=served, others=names(worker.exclude_queues))
        return display.shortened(served, 120)

    @admin.display(description=gettext_lazy("state"))
    def state(self, worker: Worker) -> SafeString:
        seen_at = self._seen(worker)
        if is_silent(seen_at, worker.silent_until, self.now):
            time = display.span(silence(seen_at, self.now))
            return display.label(gettext("not seen for {time}").format(time=time), "red")
        if worker.ordered:
            word = gettext("paused") if worker.ordered == "pause" else gettext("stopping")
            by = format_html(gettext("by {name}"), name=display.shortened(worker.ordered_by, 60))
            return format_html("{}{}", display.label(word, "amber"), display.line(by))
        if not self.held.is_busy(worker.id, worker.asleep_until, self.now):
            return display.label(gettext("idle"), "blue")
        slots = gettext("{used} of {count} slots").format(
            used=self.held.used({worker.id: worker.slots}), count=display.number(worker.slots)
        )
        return format_html("{}{}", display.label(gettext("busy"), "green"), display.line(slots) if worker.tasks else "")

    @admin.display(description=gettext_lazy("problem"))
    def problem(self, worker: Worker) -> SafeString | str:
        return display.shortened(worker.problem or "", 120)

    @admin.display(description=gettext_lazy("seen at"))
    def seen_at(self, worker: Worker) -> SafeString | str:
        return display.moment(self._seen(worker))

    @admin.display(description=gettext_lazy("started at"))
    def started_at(self, worker: Worker) -> SafeString | str:
        return display.moment(getattr(worker, "started", None))

    def _seen(self, worker: Worker) -> dt.datetime:
        seen: dt.datetime = getattr(worker, "seen", self.now)
        return seen


def names(queues: list[str | None]) -> str:
    return ", ".join(str(queue) for queue in queues) or gettext("none")


@admin.register(Worker)
class WorkerAdmin(ReadOnlyAdmin):
    is_live_page = True
    ordering = ("-seen_at", "id")
    sortable_by = ()
    actions = ("pause", "resume", "stop", "more_slots", "fewer_slots")

    def has_change_permission(self, request: HttpRequest, obj: Model | None = None) -> bool:
        """Allows the actions; the page of a row has nothing to edit."""
        return obj is None and admin.ModelAdmin.has_change_permission(self, request)

    @admin.action(description=gettext_lazy("Pause"), permissions=["change"])
    def pause(self, request: HttpRequest, queryset: QuerySet[Worker]) -> None:
        self._order(request, queryset, "pause", gettext("Paused"))

    @admin.action(description=gettext_lazy("Resume"), permissions=["change"])
    def resume(self, request: HttpRequest, queryset: QuerySet[Worker]) -> None:
        self._order(request, queryset, "resume", gettext("Resumed"))

    @admin.action(description=gettext_lazy("Stop"), permissions=["change"])
    def stop(self, request: HttpRequest, queryset: QuerySet[Worker]) -> None:
        self._order(request, queryset, "stop", gettext("Asked to stop"))

    @admin.action(description=gettext_lazy("One slot more"), permissions=["change"])
    def more_slots(self, request: HttpRequest, queryset: QuerySet[Worker]) -> None:
        self._order(request, queryset, "slots", gettext("One slot more"), change=1)

    @admin.action(description=gettext_lazy("One slot fewer"), permissions=["change"])
    def fewer_slots(self, request: HttpRequest, queryset: QuerySet[Worker]) -> None:
        self._order(request, queryset, "slots", gettext("One slot fewer"), change=-1)

    def _order(
        self, request: HttpRequest, queryset: QuerySet[Worker], order: str, done: str, *, change: int | None = None
    ) -> None:
        followed: list[str] = []
        gone: list[str] = []
        chosen = list(queryset.only("id", "slots", "ordered_slots")[: parts_actions.MOST])
        if self.are_gone(request, chosen):
            return
        for worker in chosen:
            slots = None
            if change is not None:
                slots = min(control.MAX_SLOTS, max(1, (worker.ordered_slots or worker.slots) + change))
            by = audit_log.name_of_user(request)
            found = control.order_worker(worker.id, order, slots=slots, by=by, database=alias())
            (followed if found else gone).append(worker.id)
        audit_log.written(request, Worker, followed, f"{done}.")
        if followed:
            message = gettext("{done}: {names}. Workers follow within seconds.")
            message = message.format(done=done, names=parts_actions.first_names(followed))
            self.message_user(request, message, messages.SUCCESS)
        if gone:
            message = gettext("Gone, or a listener for raw messages, so nothing was ordered: {names}.")
            message = message.format(names=parts_actions.first_names(gone))
            self.message_user(request, message, messages.WARNING)

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
