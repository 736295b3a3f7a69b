"""Finds what enqueues and workers wait for: table locks that a session holds for long, and standbys."""

from __future__ import annotations

import datetime as dt
import time
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
COMMITS_WAIT = Kind(
    "commits-wait",
    Severity.ERROR,
    "Every commit waits until the standbys of synchronous_standby_names have it: enqueues hang, and no job begins or "
    "ends. Bring the standbys back, or take them out of the setting: then all commits go on, and nothing is lost.",
)
LONG_COMMIT = dt.timedelta(seconds=3)
AGAIN_SECONDS = 1.0
"""A long statement may have begun to wait just now, for a standby that is well: so who waits must still do so then."""

# A role that may not read statistics sees its own sessions.
COMMITS = """
select a.pid, a.query_start, extract(epoch from clock_timestamp() - a.query_start)::float8
from pg_stat_activity a
where a.wait_event = 'SyncRep' and a.query_start < clock_timestamp() - %(long)s
"""

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


def commits(patient: Subject) -> Iterator[Finding]:
    if not (before := {row[:2] for row in patient.rows(COMMITS, {"long": LONG_COMMIT})}):
        return
    time.sleep(AGAIN_SECONDS)
    waits = [seconds for *wait, seconds in patient.rows(COMMITS, {"long": LONG_COMMIT}) if tuple(wait) in before]
    if waits:
        yield COMMITS_WAIT.found(
            f"{len(waits)} {'commit waits' if len(waits) == 1 else 'commits wait'} for a synchronous standby, for "
            f"{span(dt.timedelta(seconds=max(waits)))} by now.",
            "show synchronous_standby_names; select application_name, state, sync_state from pg_stat_replication;",
            commits=len(waits),
            seconds=max(waits),
        )
