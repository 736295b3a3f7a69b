"""Computes what Insights shows from the rows of the report: series by hour or by day, and tables."""

from __future__ import annotations

import datetime as dt
from collections import defaultdict
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

from django.db.models import F, Sum

from django_pgqueue.models.tables import ReportError, ReportHour, ReportQueue, Rollup
from django_pgqueue.values import histogram
from django_pgqueue.values.times import aware, in_utc, local

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from django.db.models import QuerySet

STATUSES = ("succeeded", "deferred", "retried", "failed", "lost", "cancelled")
SUMS = (*STATUSES, "enqueued", "messages", "message_attempts", "sla_misses", "run_ms")
BY_HOUR = dt.timedelta(days=4)
"""Longer periods are shown by day."""
MAX_ROWS = 20_000
LISTED = 10
HOUR = dt.timedelta(hours=1)


@dataclass(slots=True)
class Total:
    """Sums over rows of the report."""

    counts: dict[str, float] = field(default_factory=lambda: dict.fromkeys(SUMS, 0))
    waits: dict[str, int] = field(default_factory=dict)
    runs: dict[str, int] = field(default_factory=dict)
    has_target: bool = False
    has_enqueued: bool = False

    def add(self, row: dict[str, Any]) -> None:
        for name in SUMS:
            self.counts[name] += row[name] or 0
        self.has_target |= row["sla_misses"] is not None
        self.has_enqueued |= row["enqueued"] is not None
        histogram.add(self.waits, histogram.readable(row["wait_histogram"]))
        histogram.add(self.runs, histogram.readable(row["run_histogram"]))

    def add_all(self, other: Total) -> None:
        for name in SUMS:
            self.counts[name] += other.counts[name]
        self.has_target |= other.has_target
        self.has_enqueued |= other.has_enqueued
        histogram.add(self.waits, other.waits)
        histogram.add(self.runs, other.runs)

    @property
    def attempts(self) -> float:
        return sum(self.counts[status] for status in STATUSES)

    def wait_ms(self, share: float) -> float | None:
        return histogram.quantile_ms(numbers(self.waits), share)

    def run_ms(self, share: float) -> float | None:
        return histogram.quantile_ms(numbers(self.runs), share)


def numbers(of_texts: Mapping[str, int]) -> dict[int, int]:
    """Converts a JSON histogram, whose keys are text."""
    return {int(bucket): int(count) for bucket, count in of_texts.items()}


class JobKind(NamedTuple):
    """Attempts of a task in a queue."""

    queue: str
    task: str | None


def rollups(using: str) -> QuerySet[Any]:
    """Returns the hours of the roll-up, with the column by which rows of the report are chosen."""
    return Rollup.objects.using(using).filter(minutes=60).annotate(hour=F("starts_at"))


def whole(reported: list[dict[str, Any]], rolled: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Returns the rows of each hour from the source that has counted more attempts in it; the report, if both have the
    same.  It may have been made in the middle of an hour, and the roll-up may be younger than the history.
    """
    of_report, of_rollup = by_hour(reported), by_hour(rolled)
    chosen: list[dict[str, Any]] = []
    for hour in sorted({*of_report, *of_rollup}, reverse=True):
        own, other = of_report.get(hour, []), of_rollup.get(hour, [])
        if own and attempts(own) >= attempts(other):
            chosen += own
        else:
            chosen += [{**row, "enqueued": None, "sla_misses": None} for row in other]
    return chosen


def by_hour(rows: list[dict[str, Any]]) -> dict[dt.datetime, list[dict[str, Any]]]:
    found: dict[dt.datetime, list[dict[str, Any]]] = defaultdict(list)
    for row in rows:
        found[in_utc(row["hour"])].append(row)
    return found


def attempts(rows: list[dict[str, Any]]) -> int:
    return sum(row[status] for row in rows for status in STATUSES)


class Figures:
    """Figures of the chosen rows of the report and of the roll-up."""

    def __init__(self, chosen: QuerySet[ReportHour], rolled: QuerySet[Any], queue: str | None) -> None:
        rows: list[dict[str, Any]] = list(chosen.order_by("-hour", "-pk").values()[: MAX_ROWS + 1])  # type: ignore[arg-type]
        others: list[dict[str, Any]] = list(rolled.order_by("-hour", "-pk").values()[: MAX_ROWS + 1])
        self.capped = max(len(rows), len(others)) > MAX_ROWS
        self.rows = whole(rows[:MAX_ROWS], others[:MAX_ROWS])
        self.using = chosen.db
        self.queue = queue
        hours = [aware(row["hour"]) for row in self.rows]
        self.first: dt.datetime | None = min(hours, default=None)
        self.last: dt.datetime | None = max(hours, default=None)
        self.daily = bool(hours) and max(hours) - min(hours) > BY_HOUR

    @property
    def steps(self) -> list[dt.datetime]:
        """The hours or days of the charts, without a gap."""
        if self.first is None or self.last is None:
            return []
        step, found = self.step_of(self.first), []
        while step <= self.last:
            found.append(step)
            step = self._next(step)
        return found

    def step_of(self, moment: dt.datetime) -> dt.datetime:
        shown = local(aware(moment))
        if self.daily:
            return shown.replace(hour=0, minute=0, second=0)
        # In one time zone, both hours that a clock shows twice would be the same.
        return shown.replace(tzinfo=dt.timezone(shown.utcoffset() or dt.timedelta()))

    def _next(self, step: dt.datetime) -> dt.datetime:
        if not self.daily:
            return self.step_of(step + HOUR)
        # A day with a clock change has 23 or 25 hours.
        return self.step_of(step.replace(hour=12) + dt.timedelta(days=1))

    def by_step(self) -> dict[dt.datetime, Total]:
        found = {step: Total() for step in self.steps}
        for row in self.rows:
            found[self.step_of(row["hour"])].add(row)
        return found

    @cached_property
    def kinds(self) -> dict[JobKind, Total]:
        """Added up once for all tables: a week of many queues has thousands of histograms."""
        found: dict[JobKind, Total] = defaultdict(Total)
        for row in self.rows:
            found[JobKind(row["queue"], row["task"])].add(row)
        return found

    def by_name(self, column: Literal["queue", "task"]) -> list[tuple[str | None, Total]]:
        found: dict[str | None, Total] = defaultdict(Total)
        for kind, total in self.kinds.items():
            found[getattr(kind, column)].add_all(total)
        return list(found.items())

    def slowest(self) -> list[tuple[str | None, Total]]:
        """Returns the tasks, the highest 95th percentile of run time first."""
        return sorted(self.by_name("task"), key=lambda named: -(named[1].run_ms(0.95) or 0))[:LISTED]

    def queues(self) -> list[tuple[str | None, Total]]:
        return sorted(self.by_name("queue"), key=lambda named: -named[1].attempts)[:LISTED]

    def levels(self) -> dict[dt.datetime, dict[str, float]]:
        """Depth and running attempts of the chosen queue, or of all queues together."""
        found: dict[dt.datetime, dict[str, float]] = {
            step: dict.fromkeys(("depth", "depth_max", "running", "slots"), 0.0) for step in self.steps
        }
        hours: dict[dt.datetime, dict[str, float]] = defaultdict(lambda: defaultdict(float))
        for row in self._within(ReportQueue.objects.values("hour", "depth", "depth_max", "running", "slots")):
            for name in ("depth", "depth_max", "running", "slots"):
                if 0 <= row[name] < histogram.MAX_TIMES:  # another program may have written NaN, or Infinity
                    hours[in_utc(row["hour"])][name] += row[name]
        counted: dict[dt.datetime, int] = defaultdict(int)
        for hour, levels in sorted(hours.items()):
            step = self.step_of(hour)
            counted[step] += 1
            shown = found[step]
            shown["depth"] = levels["depth"]
            shown["depth_max"] = max(shown["depth_max"], levels["depth_max"])
            shown["slots"] = max(shown["slots"], levels["slots"])
            shown["running"] += levels["running"] / (24 if self.daily else 1)
        return found

    def errors(self) -> list[dict[str, Any]]:
        found = self._within(ReportError.objects.values("error_class", "task"))
        tasks = {row["task"] for row in self.rows}
        grouped = found.annotate(total=Sum("attempts")).order_by("-total", "error_class")
        return [row for row in grouped[: 10 * LISTED] if row["task"] in tasks][:LISTED]

    def _within(self, found: Any) -> Any:
        if self.first is None or self.last is None:
            return found.none()
        chosen = found.using(self.using).filter(hour__gte=self.first, hour__lte=self.last)
        return chosen if self.queue is None else chosen.filter(queue=self.queue)


def sums(totals: Iterable[Total]) -> Total:
    altogether = Total()
    for total in totals:
        altogether.add_all(total)
    return altogether
