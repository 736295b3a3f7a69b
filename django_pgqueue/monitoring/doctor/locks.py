"""Finds table locks that a session holds for long: enqueues and workers wait for them."""

from __future__ import annotations

import datetime as dt
from typing import TYPE_CHECKING

from django_pgqueue.monitoring.doctor.finding import Finding, Kind, Severity
from django_pgqueue.monitoring.overview.formatting import span

if TYPE_CHECKING:
    from collections.abc import Iterator

    from django_pgqueue.monitoring.doctor.subject import Subject

LONG = dt.timedelta(seconds=10)

LONG_LOCK = Kind(
    "long-lock",
    Severity.WARNING,
    "Enqueues and workers wait for this lock, or will. The session changes the table, or has locked it and does other "
    "work: wait until it ends, or terminate it.",
)

# Lock modes that conflict with those of enqueues and workers; the lock of a vacuum does not.
HELD = """
select a.pid, coalesce(nullif(a.application_name, ''), 'without a name'), a.usename::text, coalesce(a.state, '-'),
       string_agg(distinct l.relation::regclass::text, ', '), min(l.mode),
       extract(epoch from clock_timestamp() - min(a.xact_start))::float8,
       (select count(*) from pg_stat_activity w
        where w.wait_event_type = 'Lock' and a.pid = any (pg_blocking_pids(w.pid)))
from pg_locks l
join pg_stat_activity a on a.pid = l.pid
where l.locktype = 'relation' and l.database = (select d.oid from pg_database d where d.datname = current_database())
  and l.granted and a.pid <> pg_backend_pid() and a.xact_start < clock_timestamp() - %(long)s
  and l.mode in ('ShareLock', 'ShareRowExclusiveLock', 'ExclusiveLock', 'AccessExclusiveLock')
  and (l.relation = any (%(tables)s::oid[]) or l.relation = 'pgqueue_attempt'::regclass)
group by a.pid, a.application_name, a.usename, a.state
order by 7 desc
limit 5
"""


def held(patient: Subject) -> Iterator[Finding]:
    asked = {"long": LONG, "tables": patient.oids()}
    for pid, application, user, state, tables, mode, age, waiting in patient.rows(HELD, asked):
        yield LONG_LOCK.found(
            f"Session {pid} ({application}, user {user}, {state}) holds {mode} on {tables}, in a transaction that "
            f"has been open for {span(dt.timedelta(seconds=age))}; {waiting} {'waits' if waiting == 1 else 'wait'} for "
            "it.",
            f"select pg_terminate_backend({pid});",
            severity=Severity.ERROR if waiting else None,
            pid=pid,
            application=application,
            user=user,
            tables=tables,
            mode=mode,
            open_seconds=age,
            waiting=waiting,
        )
