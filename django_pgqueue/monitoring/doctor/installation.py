"""Compares the database with the files of sql/: runs them in a schema of their own, and rolls it back."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

from django.db import connections, transaction
from django.db.migrations.executor import MigrationExecutor

from django_pgqueue import functions
from django_pgqueue.conf import APP_LABEL
from django_pgqueue.functions import sql_files
from django_pgqueue.monitoring.doctor.finding import Finding, Kind, Severity

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from django_pgqueue.monitoring.doctor.subject import Subject

COPY = "pgqueue_doctor_copy"
AS_OWNER = re.compile(
    r"^(.*) SECURITY DEFINER\n((?: SET [^\n]*\n)*? SET search_path TO [^\n]*, 'pg_temp'\n)", re.MULTILINE
)
"""The changes of sql/roles.sql, which are no finding.  Without pg_temp they are not safe, and do not match."""

CONTROL = re.compile(r"[\x01\x1f\x7f]")

UNAPPLIED_MIGRATION = Kind(
    "unapplied-migration", Severity.ERROR, "Apply the migration before workers with this code start."
)
OUTDATED_QUEUE = Kind(
    "outdated-queue",
    Severity.ERROR,
    "Workers with this code do not start. Upgrade the queue; workers with the code of its release go on. Until then, "
    "tables and functions are not compared with the files: load none of those by hand.",
)
NEWER_QUEUE = Kind(
    "newer-queue",
    Severity.INFO,
    "Code goes on with the queue of the next release. Deploy the code of that release; until then, tables and "
    "functions are not compared with the files.",
)
MISSING_TABLE = Kind("missing-table", Severity.ERROR, "Create it by the migrations, or from its file in sql/.")
CHANGED_TABLE = Kind(
    "changed-table",
    Severity.ERROR,
    "A user has changed it by hand, or another version has created it. Change it to match its file in sql/.",
)
MISSING_FUNCTION = Kind("missing-function", Severity.ERROR, "Create it from its file, which changes nothing else.")
CHANGED_FUNCTION = Kind(
    "changed-function",
    Severity.ERROR,
    "A user has changed it by hand, or another version has created it. Load its file to restore it; or, if the "
    "database belongs to a newer version, deploy the code of that version.",
)
UNKNOWN_FUNCTION = Kind(
    "unknown-function",
    Severity.INFO,
    "No file of this version creates it: another version left it, or a user has added it.",
)
STRAYED_FUNCTIONS = Kind(
    "strayed-functions",
    Severity.ERROR,
    "The schema was renamed, and its functions search the old name, or the tables were moved without the functions. As "
    "the owner of the queue, bring the functions to the tables.",
)
MISSING_INDEX = Kind(
    "missing-index",
    Severity.ERROR,
    "Without the index, queries read the whole table instead of a few rows. Create it as in its file in sql/, but "
    "concurrently.",
)
MISSING_TRIGGER = Kind(
    "missing-trigger",
    Severity.ERROR,
    "Without the trigger, the counts of channels do not change: channels stand still, or run too many messages. Those "
    "that wait for others are not told. Create or enable the trigger, then recount: select * from "
    "pgqueue_channel_repair(); and look for missed-end.",
)

FUNCTIONS = """
select p.oid::regprocedure::text, pg_get_functiondef(p.oid), p.proname::text
from pg_proc p where p.pronamespace = %(schema)s::regnamespace and p.prokind = 'f' and p.proname like 'pgqueue\\_%%'
"""
COLUMNS = """
select c.relname::text, a.attname::text,
       format_type(a.atttypid, a.atttypmod) || case when a.attnotnull then ' not null' else '' end
       || coalesce(' default ' || pg_get_expr(d.adbin, d.adrelid), '')
from pg_class c
join pg_attribute a on a.attrelid = c.oid and a.attnum > 0 and not a.attisdropped
left join pg_attrdef d on d.adrelid = c.oid and d.adnum = a.attnum
where c.relnamespace = %(schema)s::regnamespace and c.relkind in ('r', 'p') and c.relname like 'pgqueue\\_%%'
"""
CONSTRAINTS = """
select c.relname::text, o.conname::text, pg_get_constraintdef(o.oid)
from pg_constraint o join pg_class c on c.oid = o.conrelid
where o.connamespace = %(schema)s::regnamespace and c.relname like 'pgqueue\\_%%' and o.contype in ('c', 'f', 'p', 'u')
"""
INDEXES = """
select i.indexrelid::regclass::text, pg_get_indexdef(i.indexrelid), c.relname::text
from pg_index i join pg_class c on c.oid = i.indrelid
where c.relnamespace = %(schema)s::regnamespace and c.relname like 'pgqueue\\_%%'
  and c.relname !~ '^pgqueue_attempt_(default|[0-9]{8})$'
"""
TRIGGERS = """
select t.tgname::text,
       pg_get_triggerdef(t.oid) || case when t.tgenabled = 'D' then ' -- off' else '' end, c.relname::text
from pg_trigger t join pg_class c on c.oid = t.tgrelid
where c.relnamespace = %(schema)s::regnamespace and not t.tgisinternal and c.relname like 'pgqueue\\_%%'
"""


def migrations(patient: Subject) -> Iterator[Finding]:
    executor = MigrationExecutor(connections[patient.using])
    plan = executor.migration_plan([node for node in executor.loader.graph.leaf_nodes() if node[0] == APP_LABEL])
    missing = [migration.name for migration, _ in plan if migration.app_label == APP_LABEL]
    if missing:
        yield UNAPPLIED_MIGRATION.found(
            f"The database {patient.using!r} lacks the migrations {', '.join(missing)} of {APP_LABEL}.",
            f"python manage.py migrate {APP_LABEL} --database {patient.using}",
            migrations=missing,
        )


def release(patient: Subject) -> Iterator[Finding]:
    there = functions.installed_queue(connections[patient.using])
    if there is None or functions.apart(connections[patient.using]) is not None:
        return
    found = (
        f"The database {patient.using!r} has the queue of {there.version}; this code has that of {functions.needed()}."
    )
    if there.is_outdated:
        command = f"python manage.py migrate {APP_LABEL} --database {patient.using}"
        if not any(migrations(patient)):  # they are recorded, as by migrate --fake: it would do nothing
            command = "psql -f sql/upgrade.sql"
        yield OUTDATED_QUEUE.found(found, command, installed=there.version)
    elif there.is_newer:
        yield NEWER_QUEUE.found(found, installed=there.version)


def pins(patient: Subject) -> Iterator[Finding]:
    strayed = functions.strayed(connections[patient.using])
    if strayed is not None:
        yield STRAYED_FUNCTIONS.found(strayed, "psql -f sql/repin.sql")


def parts(patient: Subject) -> Iterator[Finding]:
    installed = functions.installed_queue(connections[patient.using])
    if installed is not None and (installed.is_outdated or installed.is_newer):
        return  # a single file of another release breaks a queue: two functions of a name, or a version that is untrue
    there = patient.value(
        "select m.relnamespace::regnamespace::text from pg_class m where m.oid = to_regclass('pgqueue_message')"
    )
    with transaction.atomic(using=patient.using):
        wanted = _copy(patient)
        transaction.set_rollback(True, using=patient.using)
    is_ = {name: _described(patient, query, there) for name, query in QUERIES.items()}
    yield from _tables(wanted, is_)
    yield from _functions(wanted["functions"], is_["functions"])
    yield from _indexes(wanted["indexes"], is_["indexes"])
    yield from _triggers(wanted["triggers"], is_["triggers"])


QUERIES = {
    "functions": FUNCTIONS,
    "columns": COLUMNS,
    "constraints": CONSTRAINTS,
    "indexes": INDEXES,
    "triggers": TRIGGERS,
}


def _copy(patient: Subject) -> dict[str, dict[Any, str]]:
    """Returns what the files make, in a schema that no other session sees."""
    with connections[patient.using].cursor() as cursor:
        cursor.execute(f"create schema {COPY}")
        cursor.execute(f"set local search_path = {COPY}")
        # A role may have one in which it may make nothing, or the database's own, which partitioned tables refuse.
        cursor.execute("set local default_tablespace = ''")
        for name in sql_files.install_order():
            cursor.execute(sql_files.current(name))
    found = {name: _described(patient, query, COPY) for name, query in QUERIES.items()}
    return {**found, "restored": _restored(patient, found["constraints"])}


def _restored(patient: Subject, constraints: dict[Any, str]) -> dict[Any, str]:
    """Returns the checks as they are after pg_dump and a restore: PostgreSQL reads its own text with other brackets."""
    checks = {key: text for key, text in constraints.items() if text.startswith("CHECK")}
    with connections[patient.using].cursor() as cursor:
        cursor.execute(f"set local search_path = {COPY}")  # packages for tenants set it anew for each cursor
        for table in {table for table, _ in checks}:
            cursor.execute(f"create table {table}_again (like {table})")
        for (table, name), text in checks.items():
            cursor.execute(f"alter table {table}_again add constraint {name} {text}")
    there = _described(patient, CONSTRAINTS, COPY)
    return {(table, name): there[f"{table}_again", name] for table, name in checks}


def _described(patient: Subject, query: str, there: str) -> dict[Any, str]:
    """Returns definitions by name, without their schema."""
    # Before names of the queue alone: where the schema is "queue", comments have sentences that end in "queue.".
    qualifier = re.compile(rf'(?<![\w.]){re.escape(there)}\.(?="?pgqueue_)')

    def bare(text: str) -> str:
        # With standard_conforming_strings off, PostgreSQL has read the escapes of a pattern.
        text = CONTROL.sub(lambda found: f"\\u{ord(found[0]):04x}", text)
        text = AS_OWNER.sub(lambda found: (f"{found[1]}\n" if found[1] else "") + found[2], text)
        return re.sub(r"SET search_path TO [^\n]*", "SET search_path", qualifier.sub("", text))

    found = patient.rows(query, {"schema": there})
    if query in (COLUMNS, CONSTRAINTS):
        return {(table, name): bare(text) for table, name, text in found}
    return {bare(name): bare(text) for name, text, _ in found}


def _tables(wanted: dict[str, dict[Any, str]], is_: dict[str, dict[Any, str]]) -> Iterator[Finding]:
    tables = {table for table, _ in is_["columns"]}
    for table in sorted({table for table, _ in wanted["columns"]} - tables):
        yield MISSING_TABLE.found(f"The table is missing: {table}.", f"psql -f {_file_of_table(table)}", table=table)
    for what in ("columns", "constraints"):
        for (table, name), text in sorted(wanted[what].items()):
            found = is_[what].get((table, name))
            if table in tables and found not in {text, wanted["restored"].get((table, name), text)}:
                yield CHANGED_TABLE.found(
                    f"{table}: the {what.removesuffix('s')} {name} should be {text!r}, and "
                    + ("is missing." if found is None else f"is {found!r}."),
                    f"\\d {table}",
                    table=table,
                    name_of=name,
                    wanted=text,
                    there=found,
                )


def _functions(wanted: dict[Any, str], is_: dict[Any, str]) -> Iterator[Finding]:
    for signature, text in sorted(wanted.items()):
        file = _shown(sql_files.path(signature.partition("(")[0]))
        if signature not in is_:
            yield MISSING_FUNCTION.found(f"There is no function {signature}.", f"psql -f {file}", function=signature)
        elif is_[signature] != text:
            yield CHANGED_FUNCTION.found(
                f"The function {signature} differs from {file}: {_first_difference(text, is_[signature])}",
                f"psql -f {file}",
                function=signature,
            )
    for signature in sorted(set(is_) - set(wanted)):
        yield UNKNOWN_FUNCTION.found(
            f"No file of this version creates the function {signature}.", f"\\sf {signature}", function=signature
        )


def _file_of_table(table: str) -> str:
    """Returns a table's file.  A file may make several tables: pgqueue_channel.sql makes the lanes too."""
    made = re.compile(rf"^create (unlogged )?table {table} ", re.MULTILINE)
    files = sorted((sql_files.folder() / "tables").glob("*.sql"))
    return _shown(next(file for file in files if made.search(file.read_text(encoding="utf-8"))))


def _shown(file: Path) -> str:
    return f"sql/{file.relative_to(sql_files.folder()).as_posix()}"


def _indexes(wanted: dict[Any, str], is_: dict[Any, str]) -> Iterator[Finding]:
    for name, text in sorted(wanted.items()):
        if is_.get(name) != text:
            state = "There is no index" if name not in is_ else f"{is_[name]!r} is not the index"
            yield MISSING_INDEX.found(f"{state} {name}.", f"{text};", index=name, there=is_.get(name))


def _triggers(wanted: dict[Any, str], is_: dict[Any, str]) -> Iterator[Finding]:
    for name, text in sorted(wanted.items()):
        there = is_.get(name)
        if there == text:
            continue
        table = re.search(r" ON (\w+) ", text)
        off = there == f"{text} -- off"
        yield MISSING_TRIGGER.found(
            f"The trigger {name} is "
            f"{'disabled' if off else 'missing' if there is None else 'different from its file'}.",
            f"alter table {table[1] if table else ''} enable trigger {name};" if off else f"{text};",
            trigger=name,
        )


def _first_difference(wanted: str, is_: str) -> str:
    """Describes the first line that differs."""
    for number, (line, other) in enumerate(zip(wanted.splitlines(), is_.splitlines(), strict=False), start=1):
        if line != other:
            return f"in line {number}, {other.strip()!r} instead of {line.strip()!r}."
    return f"it has {len(is_.splitlines())} lines instead of {len(wanted.splitlines())}."
