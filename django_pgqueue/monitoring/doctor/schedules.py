"""Finds schedules whose jobs fail, and schedules that workers declare differently."""

from __future__ import annotations

from typing import TYPE_CHECKING

from django_pgqueue.monitoring.doctor.finding import Finding, Kind, Severity
from django_pgqueue.monitoring.overview.coverage import SILENT_AFTER

if TYPE_CHECKING:
    from collections.abc import Iterator

    from django_pgqueue.monitoring.doctor.subject import Subject

MAX_SCHEDULES = 1_000
FAILURES = 3
"""A schedule fails when this many of its latest jobs in a row have failed."""
LATEST_SLOTS = 20

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

# The latest slots whose job has ended: other jobs may still be retried.
FAILING = """
select s.name, s.task, e.message_id, coalesce(e.error_class, 'an error')
from (select s.name, s.task from pgqueue_schedule s where s.paused_at is null order by s.name limit %(schedules)s) as s
cross join lateral (
    select count(*) as count, bool_and(a.status in ('failed', 'lost')) as have_failed,
           (array_agg(a.message_id order by a.finished_at desc))[1] as message_id,
           (array_agg(a.error_class order by a.finished_at desc))[1] as error_class
    from (
        select a.status, a.message_id, a.error_class, a.finished_at
        from (
            select distinct l.message_id from (
                select l.message_id from pgqueue_schedule_slot l
                where l.name = s.name and l.message_id is not null
                order by l.slot_at desc limit %(slots)s
            ) as l
        ) as l
        join pgqueue_attempt a on a.message_id = l.message_id and a.final
        order by a.finished_at desc limit %(failures)s
    ) as a
) as e
where e.count = %(failures)s and e.have_failed
order by s.name
"""

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
    asked = {"schedules": MAX_SCHEDULES, "slots": LATEST_SLOTS, "failures": FAILURES}
    for name, task, message_id, error_class in patient.rows(FAILING, asked):
        yield FAILING_SCHEDULE.found(
            f"The last {FAILURES} jobs of the schedule {name!r} ({task}) that ended have failed, the last one with "
            f"{error_class}.",
            ENDS.format(message_id),
            schedule=name,
            task=task,
            message=message_id,
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
