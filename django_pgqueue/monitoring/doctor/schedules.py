"""Finds schedules whose jobs fail, that have left their rule, and that workers declare differently."""

from __future__ import annotations

from typing import TYPE_CHECKING

from django.db import connections

from django_pgqueue import functions
from django_pgqueue.exceptions import InvalidSchedule
from django_pgqueue.monitoring.doctor.finding import Finding, Kind, Severity
from django_pgqueue.monitoring.doctor.subject import quoted
from django_pgqueue.monitoring.overview import failing_schedules
from django_pgqueue.monitoring.overview.coverage import SILENT_AFTER
from django_pgqueue.tasks.schedule import Rule
from django_pgqueue.values import times
from django_pgqueue.values.times import EpochDateTime

if TYPE_CHECKING:
    from collections.abc import Iterator

    from django_pgqueue.monitoring.doctor.subject import Subject

MAX_SCHEDULES = 1_000
LATE_BY_MS = 3_600_000
"""Where clocks change, a slot may be as much later."""

FAILING_SCHEDULE = Kind(
    "failing-schedule",
    Severity.WARNING,
    "No caller waits for the results of a schedule, so its failures stay unnoticed. Read the error of its last job, "
    "and correct the task, its arguments or its environment.",
)
LATE_SCHEDULE = Kind(
    "late-schedule",
    Severity.WARNING,
    "The schedule does nothing until then: the clock of the server was ahead for a moment, or somebody has set a later "
    "time. In the first case, set the next time of its rule, or pause and resume it.",
)
SCHEDULE_VERSIONS = Kind(
    "schedule-versions",
    Severity.INFO,
    "During a deployment this is expected: the first declaration counts until its last worker has left. After the "
    "deployment, a worker with old code still runs: stop it.",
)

# Commands that the findings show.
SET_NEXT = "update pgqueue_schedule set next_at = {} where name = {};"
ENDS = "select status, finished_at, error_class, error_message from pgqueue_attempt where message_id = {};"

VERSIONS = """
select d.name, string_agg(format('%%s as %%s', d.workers, d.example), ', ' order by d.workers desc, d.example)
from (
    select d.name, d.declaration, count(*) as workers, min(d.worker) as example
    from pgqueue_schedule_declaration d
    join pgqueue_worker w on w.id = d.worker
        and (w.seen_at > pgqueue_clock() - %(silent_after)s or w.silent_until > pgqueue_now())
    group by d.name, d.declaration
) as d
group by d.name
having count(*) > 1
order by d.name
limit %(schedules)s
"""


def failing(patient: Subject) -> Iterator[Finding]:
    for one in failing_schedules.found(using=patient.using, looked_at=MAX_SCHEDULES):
        error_class = one.error_class or "an error"
        yield FAILING_SCHEDULE.found(
            f"The last {failing_schedules.FAILURES} jobs of the schedule {one.name!r} ({one.task}) that ended have "
            f"failed, the last one with {error_class}.",
            ENDS.format(one.message_id),
            schedule=one.name,
            task=one.task,
            message=one.message_id,
            error_class=error_class,
        )


def late(patient: Subject) -> Iterator[Finding]:
    known, now_ms = functions.schedules(connections[patient.using])
    now, fired = EpochDateTime.from_ms(now_ms), functions.schedules_that_have_fired(connections[patient.using])
    for one in [one for one in known if one.name in fired][-MAX_SCHEDULES:]:  # others have the begin that was chosen
        try:
            rule = Rule(cron=one.cron, interval_ms=one.interval_ms, timezone=one.timezone)
            expected = rule.first_after(now)
        except InvalidSchedule:  # workers pause it
            continue
        expected_ms = times.not_before(expected)
        if one.next_at - expected_ms > LATE_BY_MS:
            next_at = EpochDateTime.from_ms(one.next_at)
            yield LATE_SCHEDULE.found(
                f"The schedule {one.name!r} ({rule.words}) is due at {next_at:%Y-%m-%d %H:%M} UTC, and by its rule at "
                f"{expected:%Y-%m-%d %H:%M} UTC.",
                SET_NEXT.format(expected_ms, quoted(one.name)),
                schedule=one.name,
                late_seconds=(one.next_at - expected_ms) / 1000,
            )


def versions(patient: Subject) -> Iterator[Finding]:
    asked = {"silent_after": SILENT_AFTER, "schedules": MAX_SCHEDULES}
    for name, declarers in patient.rows(VERSIONS, asked):
        yield SCHEDULE_VERSIONS.found(
            f"Workers that are alive declare the schedule {name!r} differently: {declarers}.",
            schedule=name,
            workers=declarers,
        )
