"""Long transactions: vacuum cannot remove rows that were deleted after the oldest of them began."""

from __future__ import annotations

import datetime as dt
from typing import NamedTuple

from django_pgqueue.monitoring.overview import queries
from django_pgqueue.worker.upkeep.vacuum import HOLDS

OLD = dt.timedelta(minutes=5)
NAMED = 5

BEGAN = "coalesce(a.xact_start, a.state_change)"

PINNED = f"""
select 'session ' || a.pid || case when a.datname <> current_database() then ' of database ' || a.datname else '' end,
       coalesce(nullif(a.application_name, ''), 'without a name'), a.usename,
       extract(epoch from clock_timestamp() - {BEGAN})
from pg_stat_activity a
where {HOLDS}
  and {BEGAN} < clock_timestamp() - %(old)s
union all
select 'prepared transaction ' || p.gid
           || case when p.database <> current_database() then ' of database ' || p.database else '' end,
       'prepared', p.owner, extract(epoch from clock_timestamp() - p.prepared)
from pg_prepared_xacts p
where p.prepared < clock_timestamp() - %(old)s
order by 4 desc
limit %(named)s
"""  # noqa: S608 -- a constant


class Pinned(NamedTuple):
    who: str
    application: str
    user: str
    age: dt.timedelta


def pinned(*, using: str) -> list[Pinned]:
    """Returns the transactions that have been open for long, the oldest first."""
    rows = queries.rows(PINNED, {"old": OLD, "named": NAMED}, using=using, settings={})
    return [Pinned(who, application, user, dt.timedelta(seconds=float(age))) for who, application, user, age in rows]
