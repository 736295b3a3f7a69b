"""Databases of their own for tests of what is installed, and a description of it that can be compared."""

from __future__ import annotations

import datetime as dt
import re
import shutil
import subprocess
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import psycopg
import pytest
from django.db import connections
from django.db.migrations.executor import MigrationExecutor
from psycopg import sql
from psycopg.conninfo import conninfo_to_dict, make_conninfo

from django_pgqueue.conf import APP_LABEL
from django_pgqueue.functions import sql_files as schema
from example_project.development.embedded_postgres.binaries import Binaries
from example_project.development.embedded_postgres.errors import EmbeddedPostgresError
from tests.support.address import conninfo
from tests.support.sessions import IDLE_SESSIONS, Session

if TYPE_CHECKING:
    from collections.abc import Iterator

FOREIGN_SETTINGS = {
    "array_nulls": "off",
    "bytea_output": "escape",
    "datestyle": "ISO, DMY",
    "escape_string_warning": "off",
    "extra_float_digits": "-8",
    "intervalstyle": "sql_standard",
    "plpgsql.extra_errors": "all",
    "standard_conforming_strings": "off",
    "timezone": "Asia/Kathmandu",
    "transform_null_equals": "on",
}
"""What they say of dates, texts and numbers, in a database that somebody else has set up."""
DESCRIPTIONS = {
    "functions": """
        select pg_get_functiondef(p.oid) from pg_proc p
        where p.pronamespace = %(schema)s::regnamespace and p.prokind = 'f'
    """,
    "columns": """
        select c.relname, row_number() over (partition by c.oid order by a.attnum), a.attname,
               format_type(a.atttypid, a.atttypmod), a.attnotnull, a.attidentity, pg_get_expr(d.adbin, d.adrelid)
        from pg_class c
        join pg_attribute a on a.attrelid = c.oid and a.attnum > 0 and not a.attisdropped
        left join pg_attrdef d on d.adrelid = c.oid and d.adnum = a.attnum
        where c.relnamespace = %(schema)s::regnamespace and c.relkind in ('r', 'p')
    """,
    "indexes": """
        select c.relname, pg_get_indexdef(c.oid), c.reloptions, i.inhparent::regclass
        from pg_class c left join pg_inherits i on i.inhrelid = c.oid
        where c.relnamespace = %(schema)s::regnamespace and c.relkind in ('i', 'I')
    """,
    "constraints": """
        select c.relname, o.conname, o.contype, pg_get_constraintdef(o.oid)
        from pg_constraint o join pg_class c on c.oid = o.conrelid
        where o.connamespace = %(schema)s::regnamespace
    """,
    "triggers": """
        select t.tgname, pg_get_triggerdef(t.oid), t.tgenabled
        from pg_trigger t join pg_class c on c.oid = t.tgrelid
        where c.relnamespace = %(schema)s::regnamespace and not t.tgisinternal
    """,
    "tables and sequences": """
        select c.relname, c.relkind, c.relpersistence, c.relreplident, c.reloptions, pg_get_expr(c.relpartbound, c.oid),
               i.inhparent::regclass, d.refobjid::regclass, d.refobjsubid, d.deptype
        from pg_class c
        left join pg_inherits i on i.inhrelid = c.oid
        left join pg_depend d on d.objid = c.oid and c.relkind = 'S' and d.refclassid = 'pg_class'::regclass
        where c.relnamespace = %(schema)s::regnamespace and c.relkind in ('r', 'p', 'S', 'v')
    """,
}


def described(session: Session, schema_name: str = "public") -> dict[str, list[str]]:
    """Describe the queue in a schema, without the name of the schema and the day of the installation."""
    session.rows("set timezone = 'UTC'")
    found = {
        kind: [
            str([_everywhere(str(value), schema_name) for value in row])
            for row in session.rows(query, {"schema": schema_name})
        ]
        for kind, query in DESCRIPTIONS.items()
    }
    first = min(re.findall(r"pgqueue_attempt_(\d{8})\b", str(found["tables and sequences"])), default="19700101")
    day = dt.datetime.strptime(first, "%Y%m%d").replace(tzinfo=dt.UTC)
    return {
        kind: sorted(_every_day(text, day) for text in texts if "django_migrations" not in text)
        for kind, texts in found.items()
    }


def _everywhere(text: str, schema_name: str) -> str:
    text = re.sub(r"SET search_path TO [^\n]*\n", "SET search_path TO the schema\n", text)
    return text.replace(f"{schema_name}.", "")


def _every_day(text: str, first_day: dt.datetime) -> str:
    def days_later(found: re.Match[str]) -> str:
        day = dt.datetime.strptime(found[0].replace("-", ""), "%Y%m%d").replace(tzinfo=dt.UTC)
        return f"day {(day - first_day).days}"

    return re.sub(r"(?<=pgqueue_attempt_)\d{8}|\d{4}-\d\d-\d\d", days_later, text)


@contextmanager
def empty_database(conninfo: str, suffix: str, *, encoding: str = "UTF8") -> Iterator[str]:
    """The conninfo of a database in which there is nothing, and which is dropped again."""
    name = f"{conninfo_to_dict(conninfo)['dbname']}_{suffix}"
    drop = sql.SQL("drop database if exists {} with (force)").format(sql.Identifier(name))
    with psycopg.connect(conninfo, autocommit=True, application_name=IDLE_SESSIONS) as maintenance:
        maintenance.execute(drop)
        made = sql.SQL("create database {} template template0 encoding {} locale 'C'")
        maintenance.execute(made.format(sql.Identifier(name), encoding))
        try:
            yield make_conninfo(conninfo, dbname=name)
        finally:
            maintenance.execute(drop)


@contextmanager
def session_in(conninfo: str, *, search_path: str | None = None) -> Iterator[Session]:
    """A session that commits each statement."""
    options = _options(search_path)
    with psycopg.connect(conninfo, autocommit=True, options=options) as connection:
        yield Session(connection)


def migrate(conninfo: str, *, back: bool = False, to: str | None = None, search_path: str | None = None) -> list[str]:
    """Runs the migrations of the queue, forward or back to zero, or ``to`` one.  Returns the statements."""
    sent: list[str] = []

    def note(execute: Any, sql: Any, *others: Any) -> Any:
        sent.append(str(sql))
        return execute(sql, *others)

    connection: Any = connections["default"].copy(alias="another")
    connection.settings_dict["NAME"] = conninfo_to_dict(conninfo)["dbname"]
    if search_path is not None:
        connection.settings_dict["OPTIONS"]["options"] = _options(search_path)
    connections["another"] = connection
    try:
        executor = MigrationExecutor(connection)
        targets = [(APP_LABEL, to)] if to or back else executor.loader.graph.leaf_nodes(APP_LABEL)
        with connection.execute_wrapper(note):
            executor.migrate(targets)
    finally:
        connection.close()
        del connections["another"]
    return sent


def psql(conninfo: str, *arguments: str, search_path: str | None = None) -> subprocess.CompletedProcess[str]:
    """Runs psql, which comes with the embedded server or with the system."""
    options = _options(search_path)
    return subprocess.run(
        [psql_program(), "--no-psqlrc", "--quiet", *arguments, make_conninfo(conninfo, options=options)],
        capture_output=True,
        text=True,
        check=False,
        cwd="/",  # \ir finds the files beside install.sql wherever psql is started
    )


def _options(search_path: str | None) -> str:
    return "-c search_path=" + search_path.replace(" ", r"\ ") if search_path else ""


def psql_program() -> str:
    try:
        found = str(Binaries.found().program("psql"))
    except EmbeddedPostgresError:
        found = ""
    program = shutil.which(found) or shutil.which("psql")
    if program is None:
        pytest.skip("needs psql (Debian: apt install postgresql-client)")
    return program


def sql_files() -> dict[str, str]:
    """The texts of sql/ that are in force, by name."""
    folder = schema.folder()
    return {path.stem: path.read_text(encoding="utf-8") for path in (*folder.glob("*.sql"), *folder.glob("*/*.sql"))}


def install(session: Session, release: str | None = None) -> None:
    """Makes the queue of today, or of a release, in the first schema of the session's search_path, without psql."""
    for name in schema.install_order(release):
        session.rows(schema.load(name, release=release))
    session.rows("select pgqueue_attempt_maintain()")


def refuse(session: Session, tag: str) -> None:
    """Makes an event trigger that refuses statements, as the owners of a server do: for a transaction that is rolled
    back.
    """
    session.rows(f"""
        create function pg_temp.refuse() returns event_trigger language plpgsql
        as $$ begin raise exception 'no {tag}, please'; end $$
    """)
    session.rows(
        f"create event trigger refuse on ddl_command_start when tag in ('{tag}') execute function pg_temp.refuse()"
    )


@contextmanager
def refusing_connections(database: str) -> Iterator[None]:
    """The sessions that are there go on."""
    change = sql.SQL("alter database {} allow_connections {}")
    with psycopg.connect(conninfo("postgres"), autocommit=True) as elsewhere:
        elsewhere.execute(change.format(sql.Identifier(database), sql.Literal(False)))
        try:
            yield
        finally:
            elsewhere.execute(change.format(sql.Identifier(database), sql.Literal(True)))
