"""Jobs whose workers died while they ran: a worker runs each of them alone."""

from __future__ import annotations

from typing import NamedTuple

from django_pgqueue.monitoring.overview import queries

LOOKED_AT = 1_000
MAX_TASKS = 3
# Those that were lost most often come first, and so does the task of the first of them.
QUARANTINED = """
select q.task, count(*), max(q.lost)
from (
    select m.task, m.lost from pgqueue_message m
    where m.alone_at is not null and m.task is not null and m.parked_at is null
    order by m.lost desc, m.alone_at desc, m.id desc limit %(looked_at)s
) as q
group by q.task order by 3 desc, 1 limit %(tasks)s
"""


class QuarantinedTask(NamedTuple):
    task: str
    jobs: int
    """At most ``LOOKED_AT``."""
    lost: int
    """How many workers the job died with that was lost most often."""


def tasks(*, using: str) -> list[QuarantinedTask]:
    asked = {"looked_at": LOOKED_AT, "tasks": MAX_TASKS}
    return [QuarantinedTask(*row) for row in queries.rows(QUARANTINED, asked, using=using, settings={})]
