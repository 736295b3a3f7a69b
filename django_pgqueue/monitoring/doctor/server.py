"""Checks settings that cost speed or data, of the server, the database and the role, and the server's resources."""

from __future__ import annotations

import datetime as dt
from typing import TYPE_CHECKING

from django_pgqueue.monitoring.doctor.finding import Finding, Kind, Severity
from django_pgqueue.monitoring.doctor.subject import named
from django_pgqueue.monitoring.overview.coverage import SILENT_AFTER
from django_pgqueue.monitoring.overview.formatting import span

if TYPE_CHECKING:
    from collections.abc import Iterator

    from django_pgqueue.monitoring.doctor.subject import Subject

SHORT = dt.timedelta(minutes=1)
"""A statement or a transaction of a job may well take this long."""
USED = 0.8
FILLING, NEARLY_FULL = 0.1, 0.5

FSYNC_OFF = Kind(
    "fsync-off",
    Severity.ERROR,
    "A crash of the machine destroys the whole cluster. Turn fsync off only on servers whose data may be lost.",
)
FULL_PAGE_WRITES_OFF = Kind(
    "full-page-writes-off", Severity.ERROR, "A crash of the machine may leave pages that are half written."
)
SYNCHRONOUS_COMMIT_OFF = Kind(
    "synchronous-commit-off",
    Severity.WARNING,
    "A crash may lose the commits of the last second: jobs are lost, or run again. The queue itself turns it off "
    "where no data can be lost. Turn it on for the role, the database or the server.",
)
AUTOVACUUM_OFF = Kind(
    "autovacuum-off",
    Severity.ERROR,
    "Ended messages are never cleaned up, and every dequeue steps over more and more of them.",
)
TRACK_COUNTS_OFF = Kind("track-counts-off", Severity.ERROR, "Autovacuum gets no statistics, and so cleans up no table.")
TRIGGERS_OFF = Kind(
    "triggers-off",
    Severity.ERROR,
    "With replica no trigger runs: messages of channels, and those that wait for others, wait for ever. It is meant "
    "for sessions that load or replicate rows. When it is reset, channel-count and missed-end find what was missed.",
)
ARRAY_NULLS_OFF = Kind(
    "array-nulls-off",
    Severity.ERROR,
    "PostgreSQL reads a null in a list as the text NULL, or refuses the list: calls about many messages go wrong. It "
    "is meant for programs from before 2006.",
)
IDLE_TRANSACTIONS = Kind(
    "idle-transactions",
    Severity.INFO,
    "PostgreSQL does not end a transaction that a program has left open, and that transaction keeps dead rows alive. "
    "Set the timeout: ten minutes are enough for most sites.",
)
STATEMENT_TIMEOUT = Kind(
    "statement-timeout",
    Severity.WARNING,
    "It cancels the statements of jobs as well as those of web requests. Give the workers a role of their own, or "
    "change the setting for their role.",
)
TRANSACTION_TIMEOUT = Kind(
    "transaction-timeout",
    Severity.WARNING,
    "It cancels atomic jobs that take longer, and closes their connections. Give the workers a role of their own, or "
    "change the setting for their role.",
)
SENT = (
    "It cancels jobs as well as web requests. Workers need other settings than the web: leave it out of their options "
    "in DATABASES (or out of PGOPTIONS), by a variable of their environment."
)
FEW_CONNECTIONS = Kind(
    "few-connections",
    Severity.WARNING,
    "Each worker process has up to three connections for the queue and one for each of its slots. Raise the limit, run "
    "fewer slots, or let the web processes use a pooler.",
)
NOTIFICATION_QUEUE = Kind(
    "notification-queue",
    Severity.WARNING,
    "When the queue of notifications is full, every transaction that notifies fails. A listening session has been in "
    "one transaction for a long time: end that transaction.",
)

SETTINGS = """
select s.name, s.setting, s.reset_val, s.unit from pg_settings s
where s.name in ('fsync', 'full_page_writes', 'synchronous_commit', 'autovacuum', 'track_counts',
                 'idle_in_transaction_session_timeout', 'statement_timeout', 'transaction_timeout',
                 'session_replication_role', 'array_nulls')
"""

# The limits of a database and of a role do not hold for superusers.
CONNECTIONS = """
with sessions as materialized (
    select a.datname, a.usename from pg_stat_activity a where a.backend_type = 'client backend'
), limits as (
    select 'the server' as whose, 'system set max_connections =' as change,
           current_setting('max_connections')::int - current_setting('superuser_reserved_connections')::int as there,
           (select count(*) from sessions) as used
    union all
    select 'the database ' || d.datname, format('database %%I connection limit', d.datname), d.datconnlimit,
           (select count(*) from sessions s where s.datname = d.datname)
    from pg_roles r, pg_database d
    where r.rolname = session_user and not r.rolsuper and d.datname = current_database() and d.datconnlimit >= 0
    union all
    select 'the role ' || r.rolname, format('role %%I connection limit', r.rolname), r.rolconnlimit,
           (select count(*) from sessions s where s.usename = r.rolname)
    from pg_roles r
    where r.rolname = session_user and not r.rolsuper and r.rolconnlimit >= 0
)
select l.whose, l.there, l.used, w.wanted, l.change
from limits l, (
    select coalesce(sum(w.slots + 3), 0) as wanted from pgqueue_worker w
    where w.tasks and (w.seen_at > pgqueue_clock() - %(silent_after)s or w.silent_until > pgqueue_now())
) as w
"""

OLDEST = """
select a.pid, coalesce(nullif(a.application_name, ''), 'without a name'),
       extract(epoch from clock_timestamp() - a.xact_start)::float8
from pg_stat_activity a
where a.xact_start is not null and a.pid <> pg_backend_pid() and a.backend_type = 'client backend'
  and a.datname = current_database()
order by a.xact_start limit 1
"""

SWITCHES = (
    (FSYNC_OFF, "fsync"),
    (FULL_PAGE_WRITES_OFF, "full_page_writes"),
    (AUTOVACUUM_OFF, "autovacuum"),
    (TRACK_COUNTS_OFF, "track_counts"),
)
OF_OTHERS = ((TRIGGERS_OFF, "session_replication_role", "replica"), (ARRAY_NULLS_OFF, "array_nulls", "off"))


def settings(patient: Subject) -> Iterator[Finding]:
    # The values with which a session begins: this session has set its own time limits.
    known = {name: reset for name, _, reset, _ in patient.rows(SETTINGS)}
    for kind, name in SWITCHES:
        if known[name] == "off":
            more = "; select pg_reload_conf();"
            yield kind.found(f"{name} is off.", f"alter system set {name} = on{more}", setting=name, value="off")
    if known["synchronous_commit"] == "off":
        yield SYNCHRONOUS_COMMIT_OFF.found(
            "synchronous_commit is off for this role in this database.",
            "alter system set synchronous_commit = on; select pg_reload_conf();  -- see also: alter role, alter "
            "database",
            setting="synchronous_commit",
            value="off",
        )
    for kind, name, bad in OF_OTHERS:
        if known[name] == bad:
            user = patient.value("select current_user::text")
            yield kind.found(
                f"{name} is {bad} for the user {user}.",
                f"alter role {named(user)} reset {name};  -- see also: alter database, alter role in database, alter "
                "system",
                setting=name,
                value=bad,
            )
    for table in patient.tables():
        if any(option in {"autovacuum_enabled=false", "autovacuum_enabled=off"} for option in table.options):
            yield AUTOVACUUM_OFF.found(
                f"autovacuum is off for {table.name}.",
                f"alter table {table.name} reset (autovacuum_enabled);",
                setting="autovacuum_enabled",
                value="off",
                table=table.name,
            )
    yield from _timeouts(patient, known)


def _timeouts(patient: Subject, known: dict[str, str]) -> Iterator[Finding]:
    user = patient.value("select current_user::text")
    if known["idle_in_transaction_session_timeout"] == "0":
        yield IDLE_TRANSACTIONS.found(
            "idle_in_transaction_session_timeout is 0: a transaction may stay open for ever.",
            "alter system set idle_in_transaction_session_timeout = '10min'; select pg_reload_conf();",
            setting="idle_in_transaction_session_timeout",
            value="0",
        )
    for kind, name in ((STATEMENT_TIMEOUT, "statement_timeout"), (TRANSACTION_TIMEOUT, "transaction_timeout")):
        limit = dt.timedelta(milliseconds=int(known.get(name, 0)))
        if dt.timedelta(0) < limit < SHORT:
            # What a client sends comes before what its role has.
            is_sent = name in patient.options
            place = "by the options of the connection" if is_sent else f"for the user {user}"
            yield kind.found(
                f"{name} is {span(limit)} {place}.",
                "" if is_sent else f"alter role {named(user)} set {name} = 0;",
                remedy=SENT if is_sent else None,
                setting=name,
                value=known[name],
                user=user,
            )


def connections(patient: Subject) -> Iterator[Finding]:
    for whose, there, used, wanted, change in patient.rows(CONNECTIONS, {"silent_after": SILENT_AFTER}):
        of_server = whose == "the server"
        if wanted > there:
            # The workers may have another role, and behind a pooler a small limit is the purpose.
            unless = "" if of_server else ", which is too few if they use it without a pooler"
            yield FEW_CONNECTIONS.found(
                f"The workers that are alive may open {wanted} connections, and {whose} has {there}{unless}.",
                f"alter {change} {2 * wanted};{'  -- and restart the server' if of_server else ''}",
                severity=Severity.ERROR if of_server else Severity.WARNING,
                connections=there,
                wanted=wanted,
                whose=whose,
            )
        elif used > USED * there:
            yield FEW_CONNECTIONS.found(
                f"{used} of {there} connections of {whose} are used.",
                "select usename, application_name, state, count(*) from pg_stat_activity group by 1, 2, 3 order by 4 "
                "desc;",
                connections=there,
                used=used,
                whose=whose,
            )


def notification_queue(patient: Subject) -> Iterator[Finding]:
    used = patient.value("select pg_notification_queue_usage()")
    if used >= FILLING:
        oldest = patient.rows(OLDEST)
        who = "".join(
            f" The oldest transaction is that of session {pid} ({application}), open for "
            f"{span(dt.timedelta(seconds=age))}."
            for pid, application, age in oldest
        )
        yield NOTIFICATION_QUEUE.found(
            f"The queue of notifications is {used:.1%} full.{who}",
            "".join(f"select pg_terminate_backend({pid});" for pid, _, _ in oldest),
            severity=Severity.ERROR if used >= NEARLY_FULL else None,
            usage=used,
            pid=oldest[0][0] if oldest else None,
        )
