"""Counters of what a worker has done, which only grow."""

from __future__ import annotations

from bisect import bisect_left
from typing import TYPE_CHECKING, Any

from django_pgqueue.exceptions import UnknownTask
from django_pgqueue.tasks import registry

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from django_pgqueue.worker.run.outcome import EndedAttempt

SECONDS = (0.001, 0.005, 0.01, 0.05, 0.1, 0.5, 1.0, 5.0, 10.0, 30.0, 60.0, 300.0, 1800.0)
SIZES = (1, 2, 5, 10, 20, 50, 100, 200, 500)
MAX_SERIES = 500
"""At most this many pairs of a task and a queue have numbers of their own: a queue's name may be anything."""
OTHERS = "(others)"
UNKNOWN = "(unknown)"


class Histogram:
    """A histogram: how many values lie between each bound and the one before, and the sum of the values."""

    __slots__ = ("bounds", "counts", "total")

    def __init__(self, bounds: tuple[float, ...], state: Any = None) -> None:
        self.bounds = bounds
        self.counts: list[int] = state[0] if state else [0] * (len(bounds) + 1)
        self.total: float = state[1] if state else 0.0

    def add(self, value: float) -> None:
        self.counts[bisect_left(self.bounds, value)] += 1
        self.total += value

    def plus(self, other: Histogram) -> None:
        self.counts = [ours + theirs for ours, theirs in zip(self.counts, other.counts, strict=True)]
        self.total += other.total

    @property
    def state(self) -> Any:
        return [self.counts, round(self.total, 6)]


class MetricSeries:
    """The numbers of one task in one queue."""

    __slots__ = ("run", "statuses", "wait")

    def __init__(self, state: Any = None) -> None:
        statuses, run, wait = state or ({}, None, None)
        self.statuses: dict[str, int] = statuses
        self.run = Histogram(SECONDS, run)
        self.wait = Histogram(SECONDS, wait)

    def plus(self, other: MetricSeries) -> None:
        for status, count in other.statuses.items():
            self.statuses[status] = self.statuses.get(status, 0) + count
        self.run.plus(other.run)
        self.wait.plus(other.wait)

    @property
    def state(self) -> Any:
        return [self.statuses, self.run.state, self.wait.state]


class Counters:
    """The numbers of one process.  They go on from ``state``, because they outlive the process that wrote it."""

    def __init__(self, state: Mapping[str, Any] | None = None) -> None:
        state = state or {}
        self.series = {(task, queue): MetricSeries(rest) for task, queue, *rest in state.get("series", ())}
        self.claim_seconds = Histogram(SECONDS, state.get("claim_seconds"))
        self.claimed = Histogram(SIZES, state.get("claimed"))
        self.recorded = Histogram(SIZES, state.get("recorded"))
        self.empty_claims: int = state.get("empty_claims", 0)
        self.reconnects: int = state.get("reconnects", 0)

    @property
    def state(self) -> dict[str, Any]:
        return {
            "series": [[task, queue, *series.state] for (task, queue), series in self.series.items()],
            "claim_seconds": self.claim_seconds.state,
            "claimed": self.claimed.state,
            "recorded": self.recorded.state,
            "empty_claims": self.empty_claims,
            "reconnects": self.reconnects,
        }

    def claim(self, found: int, seconds: float) -> None:
        self.claim_seconds.add(seconds)
        if found:
            self.claimed.add(found)
        else:
            self.empty_claims += 1

    def record(self, ended: Sequence[EndedAttempt], otherwise: Mapping[tuple[int, int], str]) -> None:
        """``otherwise``: the recorded status of attempts that did not end as their outcome says."""
        known = self.series
        for end in ended:  # the one loop that runs for every job: it makes no call that it can do without
            message, status = end.message, end.outcome.status
            series = known.get((message.task, message.queue)) or self._series(message.task, message.queue)
            if otherwise:
                status = otherwise.get((message.id, message.attempt), status)
            series.statuses[status] = series.statuses.get(status, 0) + 1
            ran = (end.finished_us - end.started_us) / 1e6
            run, wait = series.run, series.wait
            run.counts[bisect_left(SECONDS, ran)] += 1
            run.total += ran
            # A historical time only orders messages: no message has waited since then.
            waited = end.started_us / 1e6 - max(message.dequeue_at / 1000, message.created_at.timestamp())
            wait.counts[bisect_left(SECONDS, waited)] += 1
            wait.total += waited if waited > 0 else 0.0
        self.recorded.add(len(ended))

    def _series(self, task: str | None, queue: str) -> MetricSeries:
        """Messages without a known task share a series, and so do those above MAX_SERIES: a label must not be a text
        that somebody has written into the queue.
        """
        key = (task if _is_known(task) else UNKNOWN, queue)
        if key not in self.series and len(self.series) >= MAX_SERIES:
            key = (OTHERS, OTHERS)
        return self.series.setdefault(key, MetricSeries())

    def plus(self, other: Counters) -> None:
        for key, series in other.series.items():
            self.series.setdefault(key, MetricSeries()).plus(series)
        self.claim_seconds.plus(other.claim_seconds)
        self.claimed.plus(other.claimed)
        self.recorded.plus(other.recorded)
        self.empty_claims += other.empty_claims
        self.reconnects += other.reconnects


def _is_known(task: str | None) -> bool:
    try:
        return bool(registry.find(task or ""))
    except UnknownTask:
        return False
