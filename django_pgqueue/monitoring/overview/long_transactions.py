"""Long transactions: vacuum cannot remove rows that were deleted after the oldest of them began."""

from __future__ import annotations

import datetime as dt
from typing import NamedTuple

from django_pgqueue.monitoring.overview import queries

OLD = dt.timedelta(minutes=5)
NAMED = 5

PINNED = """
select 'session ' || a.pid, coalesce(nullif(a.application_name, ''), 'without a name'), a.usename,
       extract(epoch from clock_timestamp() - a.xact_start)
from pg_stat_activity a
where (a.backend_xmin is not null or a.backend_xid is not null) and a.pid <> pg_backend_pid()
  and a.datname = current_database() and a.backend_type <> 'autovacuum worker'
  and a.xact_start < clock_timestamp() - %(old)s
union all
select 'prepared transaction ' || p.gid, 'prepared', p.owner, extract(epoch from clock_timestamp() - p.prepared)
from pg_prepared_xacts p
where p.database = current_database() and p.prepared < clock_timestamp() - %(old)s
order by 4 desc
limit %(named)s
"""


class Pinned(NamedTuple):
    who: str
    application: str
    user: str
    age: dt.timedelta


def pinned(*, using: str) -> list[Pinned]:
    """Returns the transactions that have been open for long, the oldest first."""
    rows = queries.rows(PINNED, {"old": OLD, "named": NAMED}, using=using, settings={})
    return [Pinned(who, application, user, dt.timedelta(seconds=float(age))) for who, application, user, age in rows]
