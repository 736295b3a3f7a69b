"""Checks whether the server is PostgreSQL, has what the queue needs, and may be written to."""

from __future__ import annotations

from typing import TYPE_CHECKING

from django.db import Error, NotSupportedError, connections, transaction

from django_pgqueue import functions
from django_pgqueue.monitoring.doctor.finding import Finding, Kind, Severity
from django_pgqueue.monitoring.doctor.subject import named
from django_pgqueue.values.products import other_product

if TYPE_CHECKING:
    from collections.abc import Iterator

    from django_pgqueue.monitoring.doctor.subject import Subject

OLD_SERVER = Kind(
    "old-server", Severity.ERROR, "The queue and this version of Django need a newer server. Upgrade PostgreSQL."
)
NOT_POSTGRESQL = Kind(
    "not-postgresql",
    Severity.ERROR,
    "The queue needs PostgreSQL itself: row locks, advisory locks, triggers and partitions as PostgreSQL has them. Put "
    "the queue into a PostgreSQL database of its own, by DATABASE in the OPTIONS of TASKS.",
)
MISSING_FEATURE = Kind(
    "missing-feature",
    Severity.ERROR,
    "The functions of the queue cannot be made, or fail, without it. If the server is PostgreSQL, create it again; if "
    "it is another product, put the queue into a PostgreSQL database.",
)
STATEMENT_POOLER = Kind(
    "statement-pooler",
    Severity.ERROR,
    "In this mode a transaction has one statement: neither Django's atomic() nor the worker can do their work. Set "
    "pool_mode to session or transaction for this database.",
)
DATE_STYLE = Kind(
    "date-style",
    Severity.ERROR,
    "Django reads times in ISO alone: pages, commands and most enqueues end with an error. Reset it for the role and "
    "the database.",
)
READ_ONLY = Kind(
    "read-only",
    Severity.ERROR,
    "Nothing can be enqueued, and no job is taken. Connect to the primary: with several addresses in HOST, set "
    '{"OPTIONS": {"target_session_attrs": "read-write"}} in DATABASES. Some services also make a server read-only when '
    "its disk is full.",
)
LIMITED_RIGHTS = Kind(
    "limited-rights",
    Severity.INFO,
    "This is right for a role that is not meant to do it. Otherwise make it a member of the roles of sql/roles.sql, or "
    "of the owner of the queue.",
)

ROW_SECURITY = Kind(
    "row-security",
    Severity.ERROR,
    "A worker runs no job that it does not see, and pages and commands do not count it: no error says so. For the "
    "worker such a job has ended: jobs that wait for it run too early, and a channel with such jobs loses its turn, "
    "for other workers too, until pgqueue_channel_repair(). Turn row-level security off for these tables, or let the "
    "role bypass it. A site keeps others away by rights: see sql/roles.sql.",
)

OPEN_FUNCTIONS = Kind(
    "open-functions",
    Severity.ERROR,
    "Every login that may use the schema can enqueue any task, and drop days of the history. A restore leaves it so "
    "without the privileges (--no-privileges), or where the roles of sql/roles.sql are missing. Run that file again, "
    "as the owner of the queue.",
)

# A catalog of Aurora DSQL.  Its version() may be that of the PostgreSQL from which it was made.
DSQL = "select to_regclass('sys.iam_pg_role_mappings') is not null"

FEATURES = """
select 'the language plpgsql' where not exists (select from pg_language l where l.lanname = 'plpgsql')
union all
select 'the function ' || f.name from unnest(%(functions)s::text[]) as f (name)
where not exists (
    select from pg_proc p where p.proname = f.name and p.pronamespace = 'pg_catalog'::regnamespace
      and has_function_privilege(p.oid, 'execute')
)
"""
FUNCTIONS = [
    "hashtextextended",
    "pg_advisory_xact_lock",
    "pg_advisory_xact_lock_shared",
    "pg_current_xact_id",
    "pg_notify",
    "pg_snapshot_xmin",
    "pg_try_advisory_xact_lock",
    "pg_try_advisory_xact_lock_shared",
    "set_config",
]

SETTING = """
select s.setting, s.reset_val, s.source, current_database()::text, current_user::text
from pg_settings s where s.name = %(name)s
"""

LACKED = """
select n.what, n.privilege || ' on ' || n.name
from (values
    ('look at the queue', 'select', 'pgqueue_message'), ('run jobs', 'update', 'pgqueue_message'),
    ('run jobs', 'delete', 'pgqueue_message'), ('run jobs', 'insert', 'pgqueue_attempt'),
    ('run jobs', 'insert', 'pgqueue_worker')
) as n (what, privilege, name)
where not has_table_privilege(n.name, n.privilege)
union all
select 'enqueue', case when has_function_privilege(p.oid, 'execute') then 'insert on pgqueue_message'
                       else 'execute on ' || p.proname end
from pg_class c
join pg_proc p on p.pronamespace = c.relnamespace and p.proname = 'pgqueue_message_create'
where c.oid = to_regclass('pgqueue_message')
  and not (has_function_privilege(p.oid, 'execute') and (p.prosecdef or has_table_privilege(c.oid, 'insert')))
order by 1, 2
"""

# Functions of sql/roles.sql run with the rights of their owner.
HIDING = """
select c.relname::text, exists (select from pg_policy p where p.polrelid = c.oid),
       case when row_security_active(c.oid) then current_user::text else f.owner end
from pg_class q
join pg_class c on c.relnamespace = q.relnamespace
left join lateral (
    select o.rolname::text as owner
    from pg_proc p join pg_roles o on o.oid = p.proowner
    where p.pronamespace = q.relnamespace and p.proname like 'pgqueue\\_%%' and p.prosecdef
      and c.relrowsecurity and not (o.rolsuper or o.rolbypassrls)
      and (c.relforcerowsecurity or not pg_has_role(p.proowner, c.relowner, 'usage'))
    limit 1
) as f on true
where q.oid = to_regclass('pgqueue_message') and c.relname like 'pgqueue\\_%%' and c.relkind in ('r', 'p')
  and not c.relispartition and (row_security_active(c.oid) or f.owner is not null)
order by 1
"""

OPEN = """
select p.oid::regprocedure::text
from pg_proc p
where p.pronamespace = (select c.relnamespace from pg_class c where c.oid = to_regclass('pgqueue_message'))
  and p.proname like 'pgqueue\\_%%' and p.prosecdef
  and exists (select from aclexplode(coalesce(p.proacl, acldefault('f', p.proowner))) as a where a.grantee = 0)
order by 1
"""

ROLES = {"enqueue": "pgqueue_producer", "look at the queue": "pgqueue_reader", "run jobs": "pgqueue_consumer"}
"""The roles of sql/roles.sql."""


def product(patient: Subject) -> Iterator[Finding]:
    """Asks one statement after the other, and no transaction, which a pooler may forbid."""
    try:
        version = patient.value("select version()")
    except NotSupportedError as error:  # raised by Django, before it gives the connection away
        connections[patient.using].close()
        yield OLD_SERVER.found(str(error))
        return
    other = other_product(version) or ("Aurora DSQL" if patient.value(DSQL) else None)
    if other is not None:
        yield NOT_POSTGRESQL.found(
            f"The server of the database {patient.using!r} is {other}: {version}",
            "select version();",
            product=other,
            version=version,
        )
        return
    yield from features(patient)


def features(patient: Subject) -> Iterator[Finding]:
    lacked = [name for (name,) in patient.rows(FEATURES, {"functions": FUNCTIONS})]
    if lacked:
        yield MISSING_FEATURE.found(
            f"The server of the database {patient.using!r} lacks {', '.join(lacked)}, or lets this role not use it.",
            "create extension plpgsql;" if "the language plpgsql" in lacked else "",
            lacked=lacked,
        )


def transactions(patient: Subject) -> Iterator[Finding]:
    try:
        with transaction.atomic(using=patient.using):
            patient.value("select 1")
    except Error as error:
        if "statement pooling" not in str(error):
            raise
        connections[patient.using].close()
        reason = str(error).strip().partition("\n")[0]
        yield STATEMENT_POOLER.found(
            f"A pooler in statement mode is in front of the database {patient.using!r}: {reason}"
        )


def dates(patient: Subject) -> Iterator[Finding]:
    [(style, _, source, database, user)] = patient.rows(SETTING, {"name": "DateStyle"})
    if not style.startswith("ISO"):
        yield DATE_STYLE.found(
            f"DateStyle is {style} for the user {user} in the database {patient.using!r}.",
            change(source, database, user, "set datestyle = 'ISO'"),
            user=user,
            value=style,
            source=source,
        )


def change(source: str, database: str, user: str, to: str) -> str:
    """Returns the command that changes a setting where it comes from."""
    if source == "client":
        return "-- the connection sets it: OPTIONS in DATABASES, or a variable such as PGOPTIONS"
    places = {
        "database": f"database {named(database)}",
        "user": f"role {named(user)}",
        "database user": f"role {named(user)} in database {named(database)}",
        "global": "role all",
    }
    return f"alter {places.get(source, 'system')} {to};"


def writable(patient: Subject) -> Iterator[Finding]:
    [(_, value, source, database, user)] = patient.rows(SETTING, {"name": "default_transaction_read_only"})
    if patient.value("select pg_is_in_recovery()"):
        yield READ_ONLY.found(
            f"The server of the database {patient.using!r} is a standby: it only follows another one.",
            "select sender_host, sender_port from pg_stat_wal_receiver;",
            standby=True,
        )
    elif value == "on":
        yield READ_ONLY.found(
            f"default_transaction_read_only is on for the user {user} in the database {patient.using!r}.",
            change(source, database, user, "reset default_transaction_read_only"),
            standby=False,
            source=source,
        )


def rights(patient: Subject) -> Iterator[Finding]:
    user = patient.value("select current_user::text")
    lacked: dict[str, list[str]] = {}
    for what, right in patient.rows(LACKED):
        lacked.setdefault(what, []).append(right)
    for what, those in lacked.items():
        yield LIMITED_RIGHTS.found(
            f"The user {user} cannot {what}: it lacks {', '.join(those)}.",
            f"grant {ROLES[what]} to {named(user)};",
            user=user,
            what=what,
            lacked=those,
        )


def row_security(patient: Subject) -> Iterator[Finding]:
    """Finds row-level security for this role.  Policies, where there are any, may let it see all rows."""
    if rows := patient.rows(HIDING):
        tables, user = [table for table, _, _ in rows], rows[0][2]
        has_policies = all(policies for _, policies, _ in rows)
        shown = "what their policies show it" if has_policies else "nothing of those without a policy"
        yield ROW_SECURITY.found(
            f"Row-level security holds for the user {user} in {', '.join(tables)}: it sees {shown}.",
            " ".join(f"alter table {table} disable row level security;" for table in tables),
            severity=Severity.WARNING if has_policies else None,
            user=user,
            tables=tables,
        )


def open_functions(patient: Subject) -> Iterator[Finding]:
    if functions := [function for (function,) in patient.rows(OPEN)]:
        yield OPEN_FUNCTIONS.found(
            f"{len(functions)} functions run with the rights of their owner, and every login may call them, such as "
            f"{functions[0]}.",
            "psql -f sql/roles.sql",
            functions=functions,
        )


def hidden(patient: Subject) -> Iterator[Finding]:
    """Finds a queue in a schema that this role may not use, for which it looks as if there were none."""
    for schema, user in functions.hidden_queues(connections[patient.using]):
        yield LIMITED_RIGHTS.found(
            f"The tables of the queue are in the schema {schema}, which the user {user} may not use.",
            f"grant usage on schema {named(schema)} to {named(user)};",
            severity=Severity.ERROR,
            user=user,
            schema=schema,
        )
