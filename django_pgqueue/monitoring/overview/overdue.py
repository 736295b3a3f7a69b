"""Messages that wait for others, and that no worker looks at."""

from __future__ import annotations

import datetime as dt
from typing import NamedTuple

from django_pgqueue.monitoring.overview import queries

OVERDUE_FOR = dt.timedelta(minutes=2)
LOOKED_AT = 10_000
OVERDUE = """
select count(*), pgqueue_now() - min(o.since) from (
    (select m.check_at as since from pgqueue_message m
     where m.check_at <= pgqueue_now() - %(overdue_ms)s order by m.check_at limit %(looked_at)s)
    union all
    (select e.look_at from pgqueue_ended e
     where e.look_at <= pgqueue_now() - %(overdue_ms)s order by e.look_at limit %(looked_at)s)
) as o
"""


class Overdue(NamedTuple):
    checks: int
    """At most twice ``LOOKED_AT``."""
    since: dt.timedelta


def found(*, using: str) -> Overdue | None:
    asked = {"overdue_ms": int(OVERDUE_FOR.total_seconds() * 1000), "looked_at": LOOKED_AT}
    [(checks, since_ms)] = queries.rows(OVERDUE, asked, using=using)
    return Overdue(checks, dt.timedelta(milliseconds=since_ms)) if checks else None
