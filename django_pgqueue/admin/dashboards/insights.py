"""Insights: the roll-up of the workers and the report of the pipeline as charts and tables."""

from __future__ import annotations

import datetime as dt
from typing import TYPE_CHECKING, Any

from django.contrib import admin
from django.core.paginator import Paginator
from django.db import connections
from django.db.models import Max
from django.utils.translation import gettext

from django_pgqueue import functions
from django_pgqueue.admin.dashboards.charts import Chart, Series, count, duration, rounded_up_ms
from django_pgqueue.admin.dashboards.report_series import MAX_ROWS, STATUSES, Figures, Total, rollups, sums
from django_pgqueue.admin.parts import database, display, filters
from django_pgqueue.admin.parts.change_list import CappedChangeList
from django_pgqueue.admin.parts.read_only import ReadOnlyAdmin
from django_pgqueue.models.tables import ReportHour
from django_pgqueue.values.times import in_utc

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from django.db.models import QuerySet
    from django.http import HttpRequest

TONES = dict(zip(STATUSES, ("green", "blue", "amber", "red", "violet", "grey"), strict=True))
USUAL = dt.timedelta(days=7)


class InsightsChangeList(CappedChangeList):
    """A list with its filters, but with charts instead of rows."""

    figures: Figures
    charts: list[Chart]
    rolled: QuerySet[Any]

    def get_queryset(self, request: HttpRequest, exclude_parameters: list[str | None] | None = None) -> QuerySet[Any]:
        found = super().get_queryset(request, exclude_parameters)
        self.rolled = self._chosen_rollups(request)
        if self.is_without_rows or any(name.startswith("hour__range") for name in self.params):
            return found
        # A clock that was wrong may have left hours to come.
        found, self.rolled = (each.filter(hour__lte=database.now(request)) for each in (found, self.rolled))
        ends = [each.aggregate(newest=Max("hour"))["newest"] for each in (found, self.rolled)]
        newest = max((end for end in ends if end is not None), default=None)
        if newest is None:
            return found
        self.notes.append(gettext("These are the last seven days. Choose a range of “hour” to see others."))
        self.rolled = self.rolled.filter(hour__gt=newest - USUAL)
        return found.filter(hour__gt=newest - USUAL)

    def _chosen_rollups(self, request: HttpRequest) -> QuerySet[Any]:
        """Returns the hours of the roll-up that the filters of the page choose.  It has no channels."""
        chosen = rollups(database.alias())
        if filters.ChannelFilter.parameter_name in self.params:
            return chosen.none()
        for each in self.filter_specs:
            narrowed = each.queryset(request, chosen)
            chosen = chosen if narrowed is None else narrowed
        return chosen

    def leave_rows_out(self, request: HttpRequest) -> None:
        super().leave_rows_out(request)
        self.rolled = self.rolled.none()

    def get_results(self, request: HttpRequest) -> None:
        if self.is_without_rows:
            self.leave_rows_out(request)
        self.paginator = Paginator([], self.list_per_page)  # type: ignore[assignment]
        self.result_list, self.result_count, self.full_result_count = [], 0, None
        self.show_full_result_count = self.show_admin_actions = self.can_show_all = self.multi_page = False
        figures = self.figures = Figures(self.queryset, self.rolled, self.params.get("queue"))
        if figures.capped:
            self.notes.append(
                gettext("Only the newest {count} rows of the report are included in these sums.").format(
                    count=display.number(MAX_ROWS)
                )
            )
        self.charts = charts(figures)

    @property
    def numbers(self) -> list[tuple[str, str]]:
        """The most important figures of the shown period."""
        whole = sums(total for _, total in self.figures.by_name("queue"))
        found = [(gettext("enqueued"), count(whole.counts["enqueued"]))] if whole.has_enqueued else []
        found += [
            (gettext("finished attempts"), count(whole.attempts)),
            (gettext("failed"), percentage(whole.counts["failed"], whole.counts["messages"])),
            (gettext("attempts a message"), f"{ratio(whole.counts['message_attempts'], whole.counts['messages']):.2f}"),
            (gettext("waited (p95)"), span(whole.wait_ms(0.95))),
            (gettext("ran (p95)"), span(whole.run_ms(0.95))),
        ]
        if whole.has_target:
            found.append((gettext("started too late"), percentage(whole.counts["sla_misses"], whole.attempts)))
        return found

    @property
    def queues(self) -> list[list[str]]:
        return [line(name or "", total) for name, total in self.figures.queues()]

    @property
    def slowest(self) -> list[list[str]]:
        return [
            line(display.breakable(name or gettext("raw messages")), total) for name, total in self.figures.slowest()
        ]

    @property
    def alerts(self) -> list[tuple[str, str, str, str, str]]:
        """Unusual failures in the last day of the report, whatever the filters choose."""
        if self.is_without_rows:
            return []
        return [
            (
                f"{in_utc(alert.hour):%Y-%m-%d %H:%M} UTC",
                alert.task or gettext("raw messages"),
                alert.queue,
                display.number(alert.failed),
                display.number(alert.usual),
            )
            for alert in functions.failure_alerts(connections[database.alias()])
        ]

    @property
    def errors(self) -> list[tuple[str, str, str]]:
        return [
            (row["error_class"], row["task"] or gettext("raw messages"), display.number(row["total"]))
            for row in self.figures.errors()
        ]


def line(name: str, total: Total) -> list[str]:
    """Returns a line of a table: the name, and its figures."""
    return [
        name,
        count(total.attempts),
        percentage(total.counts["failed"], total.counts["messages"]),
        span(total.wait_ms(0.5)),
        span(total.wait_ms(0.95)),
        span(total.run_ms(0.5)),
        span(total.run_ms(0.95)),
        duration(total.counts["run_ms"]),
        display.number(int(total.counts["sla_misses"])) if total.has_target else display.NOTHING,
    ]


def charts(figures: Figures) -> list[Chart]:
    totals, levels = figures.by_step(), figures.levels()
    common: dict[str, Any] = {"steps": list(totals), "daily": figures.daily}
    each = list(totals.values())
    enqueued = [total.counts["enqueued"] if total.has_enqueued or not total.attempts else None for total in each]
    is_reported = any(total.has_enqueued for total in each)

    def levelled(name: str) -> list[float]:
        return [level[name] for level in levels.values()]

    found = [
        Chart(
            title=gettext("Throughput"),
            unit=count,
            bars=[
                Series(name=display.status(name), tone=TONES[name], values=[total.counts[name] for total in each])
                for name in STATUSES
            ],
            lines=[Series(name=gettext("enqueued"), tone="ink", values=enqueued)] if is_reported else [],
            note=gettext("Ended attempts by outcome, and enqueued messages where the pipeline has reported them."),
            **common,
        ),
        Chart(
            title=gettext("Waiting time"),
            unit=duration,
            round_up=rounded_up_ms,
            lines=percentiles(each, Total.wait_ms),
            note=gettext("Time from the due time of an attempt to its start."),
            **common,
        ),
        Chart(
            title=gettext("Run time"),
            unit=duration,
            round_up=rounded_up_ms,
            lines=percentiles(each, Total.run_ms),
            note=gettext("Time from the start of an attempt to its end."),
            **common,
        ),
        Chart(
            title=gettext("Backlog"),
            unit=count,
            bars=[Series(name=gettext("most at a time"), tone="blue", values=levelled("depth_max"))],
            lines=[Series(name=gettext("at the end"), tone="ink", values=levelled("depth"))],
            note=gettext("Due messages that waited, of all tasks of the queue."),
            **common,
        ),
        Chart(
            title=gettext("Running"),
            unit=count,
            bars=[Series(name=gettext("on average"), tone="green", values=levelled("running"))],
            lines=[Series(name=gettext("busy slots"), tone="ink", values=levelled("slots"))],
            note=gettext(
                "Concurrent attempts of all tasks of the queue. The difference between the lines is free capacity."
            ),
            **common,
        ),
    ]
    if any(total.has_target for total in each):
        misses = Series(
            name=gettext("started too late"), tone="red", values=[total.counts["sla_misses"] for total in each]
        )
        note = gettext("Attempts that started later than the target of their queue.")
        found.append(Chart(title=gettext("Missed targets"), unit=count, bars=[misses], note=note, **common))
    return [chart for chart in found if not chart.is_empty]


def percentiles(totals: Sequence[Total], ms: Callable[[Total, float], float | None]) -> list[Series]:
    return [
        Series(name=f"p{share * 100:g}", tone=tone, values=[ms(total, share) for total in totals])
        for share, tone in ((0.5, "green"), (0.95, "amber"), (0.99, "red"))
    ]


def span(ms: float | None) -> str:
    return display.NOTHING if ms is None else duration(ms)


def percentage(part: float, whole: float) -> str:
    return f"{ratio(part, whole):.1%}"


def ratio(part: float, whole: float) -> float:
    return part / whole if whole else 0.0


@admin.register(ReportHour)
class InsightsAdmin(ReadOnlyAdmin):
    """Users who may view insights see names of queues, tasks, channels and errors, and no content."""

    ordering = ("-hour", "-id")
    list_display = ("hour", "queue", "task")
    list_display_links = None
    lists_rows = False
    actions = None
    list_filter = (
        ("hour", filters.MomentRangeFilter),
        filters.QueueFilter,
        filters.TaskFilter,
        filters.ChannelFilter,
    )

    class Media:
        css = {"all": ("pgqueue/admin.css", "pgqueue/insights.css")}  # noqa: RUF012 -- Django's way to say it

    def get_changelist(self, request: HttpRequest, **kwargs: Any) -> type[CappedChangeList]:  # noqa: ARG002
        return InsightsChangeList
