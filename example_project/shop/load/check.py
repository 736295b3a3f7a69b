"""Puts what the overview, qstatus, qdoctor and /metrics say beside what is true, by ``group by``."""

from __future__ import annotations

import json
from collections import defaultdict
from dataclasses import dataclass
from io import StringIO
from typing import TYPE_CHECKING, Any, NamedTuple

from django.core.management import call_command
from django.db import connection, transaction

from django_pgqueue.monitoring import overview
from example_project.shop.load.fill import add_up

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from django_pgqueue.monitoring.overview import Overview

DB = "default"
FIGURES = (
    "ready",
    "scheduled",
    "after_others",
    "running",
    "expired",
    "failed_24_hours",
    "failed_1_hour",
    "ended_1_hour",
)
OF_QSTATUS = {"after_others": "wait_for_others"}
TOLERANCE = 0.5
"""An estimate of a queue may be off by that share (decision 80), or by MANY where there are few."""
MANY = 1_000

TRUE_MESSAGES = """
select queue,
       count(*) filter (where unlock_at is null and dequeue_at <= %(now)s),
       count(*) filter (where unlock_at is null and dequeue_at > %(now)s and dequeue_at < 9223372036854775806),
       count(*) filter (where unlock_at is null and dequeue_at = 9223372036854775807),
       count(*) filter (where unlock_at > %(now)s),
       count(*) filter (where unlock_at <= %(now)s)
from pgqueue_message group by queue
"""
# The last hour of the roll-up is the five minutes that began within it.
TRUE_ATTEMPTS = """
select queue,
       count(*) filter (where status = 'failed' and finished_at > %(at)s - interval '24 hours'),
       count(*) filter (where status = 'failed' and finished_at > %(at)s - interval '1 hour'),
       count(*) filter (where status <> 'suspended'
                          and date_bin('5 minutes', finished_at, '2000-01-01 00:00:00+00') > %(at)s - interval '1 hour')
from pgqueue_attempt where finished_at > %(at)s - interval '25 hours' group by queue
"""

Key = tuple[str, str]


class Said(NamedTuple):
    """What one of them says about a figure of a queue."""

    who: str
    value: float
    is_exact: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Compared:
    """A figure, and what all of them say about it."""

    queue: str
    figure: str
    low: int
    high: int
    said: list[Said]
    """Low and high are the true numbers before and after they were asked: messages become ready meanwhile."""

    def off(self, one: Said) -> float:
        """The share of the truth by which it is off.

        >>> one = Said("qstatus", 130, False)
        >>> Compared(queue="mail", figure="ready", low=100, high=104, said=[one]).off(one)
        0.25
        """
        if self.low <= one.value <= self.high:
            return 0.0
        nearest = self.low if one.value < self.low else self.high
        return abs(one.value - nearest) / max(1, nearest)

    def is_right(self, one: Said) -> bool:
        few = not one.is_exact and abs(one.value - self.high) <= MANY
        return self.off(one) <= (0 if one.is_exact else TOLERANCE) or few


def compared() -> list[Compared]:
    """Return all figures, the largest first, as one snapshot has them."""
    add_up()
    with transaction.atomic():
        with connection.cursor() as cursor:
            cursor.execute("set transaction isolation level repeatable read")
        before = true()
        said: dict[Key, list[Said]] = defaultdict(list)
        for key, one in [*of_overview(), *of_qstatus(), *of_qdoctor(), *of_metrics()]:
            said[key].append(one)
        after = true()
    found = [
        Compared(
            queue=queue, figure=figure, said=said[queue, figure],
            low=min(before[queue, figure], after[queue, figure]), high=max(before[queue, figure], after[queue, figure]),
        )
        for queue, figure in {**before, **said}
    ]  # fmt: skip
    return sorted(found, key=lambda one: (FIGURES.index(one.figure), -one.high, one.queue))


def true() -> dict[Key, int]:
    found: dict[Key, int] = defaultdict(int)
    with connection.cursor() as cursor:
        cursor.execute("select pgqueue_clock(), pgqueue_now()")
        at, now = cursor.fetchone()
        for statement, figures in ((TRUE_MESSAGES, FIGURES[:5]), (TRUE_ATTEMPTS, FIGURES[5:])):
            cursor.execute(statement, {"at": at, "now": now})
            for queue, *numbers in cursor.fetchall():
                found |= {(queue, figure): number for figure, number in zip(figures, numbers, strict=True)}
    return found


def of_overview() -> Iterator[tuple[Key, Said]]:
    with overview.bounded(DB):
        found: Overview = overview.taken(DB)
    for one in found.queues:
        count = one.count
        figures = (count.ready, count.scheduled, count.after_others, count.running, count.expired, *one.failures)
        for figure, number in zip(FIGURES, figures, strict=False):
            yield (one.name, figure), Said("overview", number.value, number.is_exact)
        if one.last_hour is not None:
            yield (one.name, "ended_1_hour"), Said("overview", one.last_hour.ended, True)


def of_qstatus() -> Iterator[tuple[Key, Said]]:
    for one in printed("qstatus", "--once", "--json")["queues"]:
        for figure in FIGURES[:6]:
            name = OF_QSTATUS.get(figure, figure)
            yield (one["name"], figure), Said("qstatus", one[name], name not in one["estimated"])


def of_qdoctor() -> Iterator[tuple[Key, Said]]:
    """It tells of queues without a worker, of those that somebody has forgotten to resume, and of what has expired."""
    for one in printed("qdoctor", "--json", "--fail-level", "never")["findings"]:
        if one["name"] in {"no-worker", "paused-queue"}:
            said = Said("qdoctor", one["values"]["ready"], "about " not in one["found"])
            yield (one["values"]["queue"], "ready"), said


def of_metrics() -> Iterator[tuple[Key, Said]]:
    try:
        from django_pgqueue.metrics.queue import families  # noqa: PLC0415 - the demo has no prometheus-client
    except ModuleNotFoundError:
        return
    samples = [sample for family in families([DB]) for sample in family.samples]
    estimated = {sample.labels["queue"] for sample in samples if sample.name == "pgqueue_estimated" and sample.value}
    for sample in samples:
        queue = sample.labels.get("queue", "")
        if sample.name == "pgqueue_messages":
            yield (queue, sample.labels["state"]), Said("/metrics", sample.value, queue not in estimated)
        elif sample.name == "pgqueue_failed_last_hour":
            yield (queue, "failed_1_hour"), Said("/metrics", sample.value, queue not in estimated)


def printed(*words: str) -> dict[str, Any]:
    output = StringIO()
    call_command(*words, stdout=output)
    found: dict[str, Any] = json.loads(output.getvalue())
    return found


def wrong(found: Iterable[Compared]) -> list[Compared]:
    return [one for one in found if not all(map(one.is_right, one.said))]


def lines(found: list[Compared], queues: int) -> Iterator[str]:
    """Yield a table of the largest queues of each figure, and the sum of all."""
    yield f"{'figure':16}{'queue':20}{'true':>10}{'overview':>12}{'qstatus':>12}{'qdoctor':>12}{'/metrics':>12}"
    for figure in FIGURES:
        for one in [each for each in found if each.figure == figure][:queues]:
            words = {said.who: f"{'' if said.is_exact else '~'}{said.value:,.0f}" for said in one.said}
            cells = "".join(f"{words.get(who, '-'):>12}" for who in ("overview", "qstatus", "qdoctor", "/metrics"))
            mark = "" if one not in wrong([one]) else "  WRONG"
            yield f"{figure:16}{one.queue:20}{one.high:>10,}{cells}{mark}"
    said = [(one, each) for one in found for each in one.said]
    if not any(each.who == "/metrics" for _, each in said):
        yield "/metrics has not answered, and was not compared: it needs the extra prometheus, and has two seconds."
    exact = sum(each.is_exact for _, each in said)
    furthest = max((one.off(each) for one, each in said if not each.is_exact and one.high >= MANY), default=0.0)
    yield (
        f"{len(said):,} figures of {len(found):,} numbers: {exact:,} are counted, {len(said) - exact:,} are estimates; "
        f"of {MANY:,} and more the furthest is {furthest:.0%} off. Wrong: {len(wrong(found)):,}."
    )
