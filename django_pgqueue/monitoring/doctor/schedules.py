"""Finds schedules whose jobs fail, and schedules that workers declare differently."""

from __future__ import annotations

from typing import TYPE_CHECKING

from django_pgqueue.monitoring.doctor.finding import Finding, Kind, Severity
from django_pgqueue.monitoring.overview import failing_schedules
from django_pgqueue.monitoring.overview.coverage import SILENT_AFTER

if TYPE_CHECKING:
    from collections.abc import Iterator

    from django_pgqueue.monitoring.doctor.subject import Subject

MAX_SCHEDULES = 1_000

FAILING_SCHEDULE = Kind(
    "failing-schedule",
    Severity.WARNING,
    "No caller waits for the results of a schedule, so its failures stay unnoticed. Read the error of its last job, "
    "and correct the task, its arguments or its environment.",
)
SCHEDULE_VERSIONS = Kind(
    "schedule-versions",
    Severity.INFO,
    "During a deployment this is expected: the first declaration counts until its last worker has left. After the "
    "deployment, a worker with old code still runs: stop it.",
)

# A command that the finding shows.
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


def versions(patient: Subject) -> Iterator[Finding]:
    asked = {"silent_after": SILENT_AFTER, "schedules": MAX_SCHEDULES}
    for name, declarers in patient.rows(VERSIONS, asked):
        yield SCHEDULE_VERSIONS.found(
            f"Workers that are alive declare the schedule {name!r} differently: {declarers}.",
            schedule=name,
            workers=declarers,
        )
