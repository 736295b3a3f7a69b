"""The overview as plain text, and as JSON."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from django_pgqueue.management.terminal.text import GAP, printable, shortened, table
from django_pgqueue.monitoring.overview import alerts
from django_pgqueue.monitoring.overview.formatting import NOTHING, rate, relative, span
from django_pgqueue.monitoring.overview.overview import WINDOW_HOURS
from django_pgqueue.values.times import aware, local, time_zone_name

if TYPE_CHECKING:
    import datetime as dt
    from collections.abc import Callable, Iterator

    from django_pgqueue.monitoring.overview import Overview, QueueOverview
    from django_pgqueue.monitoring.overview.figure import Figure
    from django_pgqueue.monitoring.overview.recent import Recent

MAX_NAME = 40
NO_WORKER = "No worker runs: start manage.py qworker"
NO_BREAK_SPACE = "\N{NO-BREAK SPACE}"


@dataclass(frozen=True, slots=True)
class Column:
    title: str
    cell: Callable[[QueueOverview, Overview], str]
    sacrifice: int
    """In a narrow window, the highest are dropped first; 0: never."""
    is_wanted: Callable[[Overview], bool] = lambda _: True


def number(figure: Figure) -> str:
    return f"{'' if figure.is_exact else '~'}{figure.value:,}"


def throughput(one: QueueOverview, whole: Overview) -> str:
    if one.pulse is None:
        return NOTHING
    shown = rate(one.pulse.a_minute).replace(NO_BREAK_SPACE, ",")
    return shown if whole.is_exact else f"~{shown}"


def halves(low: dt.timedelta | None, high: dt.timedelta | None) -> str:
    """Returns a median and a 95th percentile."""
    return NOTHING if low is None else f"{span(low)} / {span(high)}"


def has_last_hour(whole: Overview) -> bool:
    return any(one.last_hour for one in whole.queues)


COLUMNS = (
    Column("Queue", lambda one, _: shortened(printable(one.name), MAX_NAME), 0),
    Column("Ready", lambda one, _: number(one.count.ready), 0),
    Column("Oldest", lambda one, _: span(one.count.oldest), 2),
    Column("Scheduled", lambda one, _: number(one.count.scheduled), 5),
    Column("Running", lambda one, _: number(one.count.running), 1),
    Column("Failed 24 h", lambda one, _: number(one.failures.of_a_day), 3),
    Column("Ended/min", throughput, 4),
    Column("Waited", lambda one, _: span(one.pulse.latest_wait) if one.pulse else NOTHING, 6),
    Column(
        "Wait p50 / p95, 1 h",
        lambda one, _: halves(one.last_hour.wait_p50, one.last_hour.wait_p95) if one.last_hour else NOTHING,
        7,
        has_last_hour,
    ),
    Column(
        "Run p50 / p95, 1 h",
        lambda one, _: halves(one.last_hour.run_p50, one.last_hour.run_p95) if one.last_hour else NOTHING,
        8,
        has_last_hour,
    ),
)


def notes(one: QueueOverview, whole: Overview) -> list[str]:
    """Returns the notes about a queue besides its numbers."""
    found = []
    if one.paused:
        by = printable(one.paused.by or "somebody")
        found.append(f"paused {relative(one.paused.since, whole.at)} by {by}".replace("  ", " "))
    if one.has_no_worker:
        found.append("no worker")
    if one.count.expired:
        found.append(f"{number(one.count.expired)} expired")
    if others := one.count.after_others:
        found.append(f"{number(others)} {'waits' if others.plural == 1 else 'wait'} for other messages or events")
    return found


def columns(whole: Overview, width: int | None) -> list[Column]:
    """Returns the columns that fit."""
    chosen = [column for column in COLUMNS if column.is_wanted(whole)]
    while width is not None and len(chosen) > 2 and len(table(rows(chosen, whole))[0]) > width:
        chosen.remove(max(chosen, key=lambda column: column.sacrifice))
    return chosen


def rows(chosen: list[Column], whole: Overview) -> list[list[str]]:
    """Returns the head of the table, and a row for each queue."""
    return [
        [column.title for column in chosen],
        *([column.cell(one, whole) for column in chosen] for one in whole.queues),
    ]


def tasks(found: list[Recent], title: str) -> Iterator[str]:
    """Yields a table of tasks, those that ran longest altogether first."""
    yield ""
    yield title
    if not found:
        yield "  Nothing has ended, or no worker has added it up yet."
        return
    yield from table(
        [
            ["  Task", "Queue", "Ended", "Failed", "Retried", "Wait p50 / p95", "Run p50 / p95", "Ran altogether"],
            *(
                [
                    f"  {shortened(printable(one.task or 'raw messages'), MAX_NAME)}",
                    shortened(printable(one.queue), MAX_NAME),
                    f"{one.ended:,}", f"{one.failed:,}", f"{one.again:,}",
                    halves(one.wait_p50, one.wait_p95), halves(one.run_p50, one.run_p95), span(one.run),
                ]
                for one in found
            ),
        ],
        left=(0, 1),
    )  # fmt: skip


def head(whole: Overview, database: str) -> str:
    return f"{printable(database)} at {local(whole.at):%Y-%m-%d %H:%M:%S} ({time_zone_name()})"


def workers(whole: Overview) -> str:
    found = whole.workers
    if found.busy + found.idle:
        used = f"{found.used_slots.value:,}{'+' if found.used_slots.is_capped else ''}"
        text = f"Workers: {found.busy} busy, {found.idle} idle, {used} of {found.slots:,} slots in use"
    else:
        text = NO_WORKER
    if found.versions:
        text += f"; version {', '.join(f'{printable(name)} ({count})' for name, count in found.versions.items())}"
    return text + (f"; {found.listeners} listening for raw messages" if found.listeners else "")


def suspended(whole: Overview) -> str:
    waits = str(whole.suspended).replace(NO_BREAK_SPACE, ",")
    return waits and f"Suspended durable tasks wait: {waits}"


def warnings(whole: Overview) -> Iterator[str]:
    """Yields what is wrong, the worst first, a line for each kind."""
    yield from (printable(one.text.replace(NO_BREAK_SPACE, ",")) for one in alerts.of(whole))


def schedules(whole: Overview) -> list[tuple[str, str]]:
    """Returns the next schedules and times."""
    return [
        (
            shortened(printable(one.name), MAX_NAME),
            f"{_moment(one.next_at)} {relative(one.next_at, whole.at)}".strip(),
        )
        for one in whole.schedules
    ]


def _moment(value: Any) -> str:
    try:
        return f"{local(value):%Y-%m-%d %H:%M:%S}"
    except (OverflowError, ValueError):
        return "outside of the calendar"


def legend(whole: Overview) -> str:
    counted = whole.is_exact and all(one.is_exact for one in whole.queues)
    return "" if counted else "~ means: estimated."


def nothing() -> str:
    return f"No message waits or runs, and none has ended in the last {WINDOW_HOURS} hours."


def lines(whole: Overview, *, database: str, width: int | None = None) -> Iterator[str]:
    """Yields the overview as plain text."""
    yield head(whole, database)
    yield workers(whole)
    if waits := suspended(whole):
        yield waits
    for warning in warnings(whole):
        yield f"! {warning}"
    yield ""
    if whole.queues:
        first, *rest = table(rows(columns(whole, width), whole))
        yield first
        for line, one in zip(rest, whole.queues, strict=True):
            yield line
            yield from (f"  {note}" for note in notes(one, whole))
    else:
        yield nothing()
    if whole.more_queues:
        yield "There are more queues than these."
    if whole.schedules:
        yield ""
        yield "Next schedules"
        yield from (f"  {name}{GAP}{when}" for name, when in schedules(whole))
    if legend(whole):
        yield ""
        yield legend(whole)


def document(whole: Overview, *, database: str) -> dict[str, Any]:
    """Returns the overview for JSON: numbers, times in ISO 8601, durations in seconds."""
    return {
        "database": database,
        "at": aware(whole.at).isoformat(),
        "queues": [_queue(one) for one in whole.queues],
        "more_queues": whole.more_queues,
        "estimated": not whole.is_exact,
        "workers": {
            "busy": whole.workers.busy,
            "idle": whole.workers.idle,
            "slots": whole.workers.slots,
            "used_slots": whole.workers.used_slots.value,
            "listeners": whole.workers.listeners,
            "versions": whole.workers.versions,
            "silent": [
                {"id": one.id, "hostname": one.hostname, "pid": one.pid, "silent_seconds": _seconds(one.silence)}
                for one in whole.workers.silent
            ],
        },
        "schedules": [
            {"name": one.name, "task": one.task, "next_at": one.next_at.isoformat()} for one in whole.schedules
        ],
        "alerts": [{"kind": one.kind, "text": one.text} for one in alerts.of(whole)],
        "pinned": [
            {"who": one.who, "application": one.application, "user": one.user, "open_seconds": _seconds(one.age)}
            for one in whole.pinned
        ],
        "bloated": [
            {"kind": one.kind, "name": one.name, "bytes": one.bytes, "live_rows": one.live, "dead_rows": one.dead}
            for one in whole.bloated
        ],
        "unknown": [
            {
                "task": one.task,
                "queue": one.queue,
                "messages": one.count.value,
                "is_at_least": one.count.is_capped,
                "wait_seconds": _seconds(one.wait),
                "reason": one.reason,
            }
            for one in whole.unknown.newest
        ],
        "suspended": {"queues": whole.suspended.queues, "is_at_least": whole.suspended.is_capped},
        "more_unknown": {"tasks": whole.unknown.more.value, "is_at_least": whole.unknown.more.is_capped},
    }


def recent(one: Recent) -> dict[str, Any]:
    return {
        "ended": one.ended,
        "failed": one.failed,
        "retried": one.again,
        "run_seconds": _seconds(one.run),
        "wait_p50_seconds": _seconds(one.wait_p50),
        "wait_p95_seconds": _seconds(one.wait_p95),
        "run_p50_seconds": _seconds(one.run_p50),
        "run_p95_seconds": _seconds(one.run_p95),
    }


def recent_tasks(found: list[Recent]) -> list[dict[str, Any]]:
    return [{"task": one.task, "queue": one.queue, **recent(one)} for one in found]


def _queue(one: QueueOverview) -> dict[str, Any]:
    count = one.count
    counted = {
        "ready": count.ready,
        "scheduled": count.scheduled,
        "wait_for_others": count.after_others,
        "running": count.running,
        "expired": count.expired,
        "failed_24_hours": one.failures.of_a_day,
    }
    return {
        "name": one.name,
        **{name: each.value for name, each in counted.items()},
        "estimated": [name for name, each in counted.items() if not each.is_exact],
        "oldest_ready_seconds": _seconds(count.oldest),
        "ended_a_minute": one.pulse.a_minute if one.pulse else 0.0,
        "growth_a_minute": None if one.growth is None else round(one.growth, 1),
        "waited_seconds": _seconds(one.pulse.latest_wait) if one.pulse else None,
        "last_hour": one.last_hour and recent(one.last_hour),
        "paused": one.paused and {"since": aware(one.paused.since).isoformat(), "by": one.paused.by},
        "no_worker": one.has_no_worker,
    }


def _seconds(value: dt.timedelta | None) -> float | None:
    return None if value is None else round(value.total_seconds(), 3)
