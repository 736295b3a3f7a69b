"""Schedules whose latest jobs have all failed: no caller waits for their results."""

from __future__ import annotations

from typing import NamedTuple

from django_pgqueue.monitoring.overview import queries

FAILURES = 3
"""A schedule fails when this many of its latest jobs in a row have failed."""
LATEST_SLOTS = 20
MAX_LOOKED_AT = 200
"""By an overview, in the order of their names; the doctor looks at more."""

# The latest slots whose job has ended: other jobs may still be retried.
FAILING = """
select s.name, s.task, e.message_id, e.error_class
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


class FailingSchedule(NamedTuple):
    name: str
    task: str
    message_id: int
    """The latest job."""
    error_class: str | None


def found(*, using: str, looked_at: int = MAX_LOOKED_AT) -> list[FailingSchedule]:
    asked = {"schedules": looked_at, "slots": LATEST_SLOTS, "failures": FAILURES}
    return [FailingSchedule(*row) for row in queries.rows(FAILING, asked, using=using, settings={})]
