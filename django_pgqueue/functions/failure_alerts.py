"""Tasks that failed unusually often in the last day of the report."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from django_pgqueue.functions.connection import may_read

if TYPE_CHECKING:
    import datetime as dt

    from django_pgqueue.functions.connection import Connection


class FailureAlert(NamedTuple):
    """An hour in which a task failed more often than in the same hour of earlier weeks."""

    hour: dt.datetime
    queue: str
    task: str | None
    failed: int
    usual: int
    """The most messages that failed in the same hour of one of the four weeks before."""
    is_newest: bool
    """The hour is the last whole one that was reported."""


# The last whole hour of a report that is not older than two days; failures in the day before it; the same hours before.
ALERTS = """
with newest as (
    select max(h.hour) as hour from pgqueue_report_hour h
    where h.hour <= pgqueue_clock() - interval '1 hour' and h.hour > pgqueue_clock() - interval '48 hours'
), failures as (
    select h.hour, h.queue, h.task, sum(h.failed)::bigint as failed, h.hour = n.hour as is_newest
    from newest n join pgqueue_report_hour h on h.hour > n.hour - interval '24 hours' and h.hour <= n.hour
    where h.failed > 0
    group by h.hour, h.queue, h.task, n.hour
    having sum(h.failed) >= 10
)
select f.hour, f.queue, f.task, f.failed, coalesce(max(w.failed), 0)::bigint, f.is_newest
from failures f
left join lateral (
    select sum(b.failed) as failed from pgqueue_report_hour b
    where b.hour in (f.hour - interval '168 hours', f.hour - interval '336 hours', f.hour - interval '504 hours',
                     f.hour - interval '672 hours')
      and b.queue = f.queue and b.task is not distinct from f.task
    group by b.hour
) w on true
where exists (select from pgqueue_report_hour o where o.hour <= f.hour - interval '168 hours')
group by f.hour, f.queue, f.task, f.failed, f.is_newest
having f.failed > 3 * coalesce(max(w.failed), 0)
order by f.hour desc, f.failed desc, f.queue, f.task
limit 100
"""


def failure_alerts(connection: Connection) -> list[FailureAlert]:
    """Returns the hours and tasks in which 10 messages or more failed, and more than three times the usual number: the
    most of the same hour in the four weeks before.  None where the report is younger than a week, older than two days,
    or not readable for this login.
    """
    if not may_read(connection, "pgqueue_report_hour"):
        return []
    with connection.cursor() as cursor:
        cursor.execute(ALERTS)
        return [FailureAlert(*row) for row in cursor.fetchall()]
