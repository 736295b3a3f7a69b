"""Finds what keeps dead rows of the database from being removed: every queue in PostgreSQL suffers from it."""

from __future__ import annotations

import datetime as dt
from typing import TYPE_CHECKING, Any

from django_pgqueue.monitoring.doctor.finding import Finding, Kind, Severity
from django_pgqueue.monitoring.doctor.subject import named, quoted
from django_pgqueue.monitoring.overview.formatting import span
from django_pgqueue.monitoring.overview.long_transactions import BEGAN, OLD
from django_pgqueue.values.sizes import size
from django_pgqueue.worker.upkeep.vacuum import HOLDS

if TYPE_CHECKING:
    from collections.abc import Iterator

    from django_pgqueue.monitoring.doctor.subject import Subject

VERY_OLD = dt.timedelta(hours=1)
MOST = 5
FAR_XIDS = 1_000_000
"""A standby or slot whose horizon is this many transactions behind keeps more than a moment's dead rows."""
FAR_BYTES = 5 << 30
"""PostgreSQL keeps some of its log for itself, a gigabyte by default (``max_wal_size``)."""

OLD_TRANSACTION = Kind(
    "old-transaction",
    Severity.WARNING,
    "Until this transaction ends, vacuum cannot remove rows that were deleted after its start, and the queue becomes "
    "slower. One that has written holds back the vacuum of all databases. End the transaction if no user needs it, and "
    "find out why it stays open.",
)
PREPARED_TRANSACTION = Kind(
    "prepared-transaction",
    Severity.ERROR,
    "A program prepared this transaction and did not end it. The transaction keeps its locks and its snapshot for "
    "ever, also after a restart. Commit it or roll it back.",
)
REPLICATION_SLOT = Kind(
    "replication-slot",
    Severity.WARNING,
    "A standby, or a subscriber, that is not connected or is behind keeps old rows alive here, or the write-ahead log, "
    "until the disk is full. Start it again, or drop its slot.",
)
STANDBY_FEEDBACK = Kind(
    "standby-feedback",
    Severity.WARNING,
    "A query on the standby keeps old rows alive here, because hot_standby_feedback is on there. End that query, or "
    "turn "
    "the setting off on standbys that serve long ones.",
)
LIMITED_SIGHT = Kind(
    "limited-sight",
    Severity.INFO,
    "The doctor cannot see the transactions and queries of other users, or how old they are. Grant its role the right "
    "to read statistics, and leave track_activities on.",
)

# Django puts values into the text of a statement, and what a message is about belongs in no report.  Nothing is shown
# from the first character on with which a value may begin, or a comment, whose quotes would mislead.
VALUES = r"""'(''|\$|--|/\*|\m[0-9]).*'"""

SESSIONS = f"""
select a.pid, coalesce(nullif(a.application_name, ''), 'without a name'), a.usename::text, coalesce(a.state, '-'),
       extract(epoch from clock_timestamp() - {BEGAN})::float8,
       extract(epoch from clock_timestamp() - coalesce(a.query_start, {BEGAN}))::float8,
       left(regexp_replace(regexp_replace(a.query, {VALUES}, '...'), '[[:space:]]+', ' ', 'g'), 100),
       case when a.datname <> current_database() then a.datname::text end
from pg_stat_activity a
where {HOLDS}
  and {BEGAN} < clock_timestamp() - %(old)s
order by {BEGAN}
limit %(most)s
"""  # noqa: S608 -- a constant

PREPARED = """
select p.gid, p.owner::text, extract(epoch from clock_timestamp() - p.prepared)::float8,
       case when p.database <> current_database() then p.database::text end
from pg_prepared_xacts p
where p.prepared < clock_timestamp() - %(old)s
order by p.prepared
limit %(most)s
"""

SLOTS = """
select s.slot_name::text, s.active, age(s.xmin), l.bytes
from pg_replication_slots s
cross join lateral (
    select case when not pg_is_in_recovery()
                then pg_wal_lsn_diff(pg_current_wal_lsn(), s.restart_lsn)::bigint end as bytes) as l
where s.xmin is not null and (not s.active or age(s.xmin) >= %(far)s) or l.bytes >= %(far_bytes)s
order by age(s.xmin) desc nulls last, l.bytes desc nulls last
limit %(most)s
"""

STANDBYS = """
select r.pid, coalesce(nullif(r.application_name, ''), 'without a name'), coalesce(host(r.client_addr), 'this host'),
       age(r.backend_xmin)
from pg_stat_replication r
where r.backend_xmin is not null and age(r.backend_xmin) >= %(far)s
  and not exists (select from pg_stat_activity a where a.pid = r.pid and a.datname is not null)
order by age(r.backend_xmin) desc
limit %(most)s
"""


def transactions(patient: Subject) -> Iterator[Finding]:
    found = patient.rows(SESSIONS, {"old": OLD, "most": MOST})
    for pid, application, user, state, age, query_age, query, database in found:
        open_for = dt.timedelta(seconds=age)
        doing = (
            f"its last query began {_words(query_age)} ago: {query}"
            if query
            else "its query is not visible to this role"
        )
        yield OLD_TRANSACTION.found(
            f"The transaction of session {pid}{_of(database)} ({application}, user {user}, {state}) has been open for "
            f"{span(open_for)}; {doing}",
            f"select pg_terminate_backend({pid});",
            severity=Severity.ERROR if open_for >= VERY_OLD else None,
            pid=pid,
            application=application,
            user=user,
            state=state,
            database=database,
            open_seconds=age,
            query_seconds=query_age,
            query=query,
        )


def prepared_transactions(patient: Subject) -> Iterator[Finding]:
    for gid, owner, age, database in patient.rows(PREPARED, {"old": OLD, "most": MOST}):
        yield PREPARED_TRANSACTION.found(
            f"The prepared transaction {gid}{_of(database)} of user {owner} has waited for its end for {_words(age)}.",
            f"rollback prepared {quoted(gid)};" + (f"  -- in the database {database}" if database else ""),
            gid=gid,
            user=owner,
            database=database,
            open_seconds=age,
        )


def replication_slots(patient: Subject) -> Iterator[Finding]:
    for name, is_active, age, in_bytes in patient.rows(SLOTS, _far()):
        rows = None if age is None else f"the rows of the last {age:,} transactions"
        log = None if in_bytes is None else f"{size(in_bytes)} of the write-ahead log"
        yield REPLICATION_SLOT.found(
            f"The replication slot {name} ({'active' if is_active else 'not in use'}) holds "
            f"{' and '.join(filter(None, (rows, log)))}.",
            "" if is_active else f"select pg_drop_replication_slot({quoted(name)});",
            slot=name,
            active=is_active,
            transactions=age,
            wal_bytes=in_bytes,
        )


def standbys(patient: Subject) -> Iterator[Finding]:
    for pid, application, address, age in patient.rows(STANDBYS, _far()):
        yield STANDBY_FEEDBACK.found(
            f"The standby {application} at {address} (pid {pid} here) holds the rows of the last {age:,} transactions.",
            "select pid, now() - xact_start as open_for, query from pg_stat_activity where backend_xmin is not null "
            "order by 2 desc nulls last;  -- on the standby",
            pid=pid,
            application=application,
            address=address,
            transactions=age,
        )


def sight(patient: Subject) -> Iterator[Finding]:
    [[user, sees]] = patient.rows("select current_user::text, pg_has_role(current_user, 'pg_read_all_stats', 'usage')")
    if not sees:
        yield LIMITED_SIGHT.found(
            f"The user {user} is not a member of pg_read_all_stats.",
            f"grant pg_read_all_stats to {named(user)};",
            user=user,
        )
    # Sessions may differ.  What most of them begin with tells that the doctor finds no long transaction of theirs.
    if patient.value("select reset_val from pg_settings where name = 'track_activities'") == "off":
        yield LIMITED_SIGHT.found(
            "track_activities is off: the server does not note when a transaction began.",
            "alter system set track_activities = on; select pg_reload_conf();  -- see also: alter role, alter database",
            setting="track_activities",
        )


def _of(database: str | None) -> str:
    return "" if database is None else f" of database {database}"


def _words(seconds: float) -> str:
    return span(dt.timedelta(seconds=seconds))


def _far() -> dict[str, Any]:
    return {"far": FAR_XIDS, "far_bytes": FAR_BYTES, "most": MOST}
