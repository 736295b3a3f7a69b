"""Writes sql/upgrade.sql, which does for users of psql what the migrations do.

    python -m tests.support.upgrade_sql

tests/project/test_upgrade.py fails while the file is not what this makes of the migrations.
"""

from __future__ import annotations

import importlib
import re
from itertools import chain
from typing import TYPE_CHECKING, Any

import django
from django.conf import settings
from django.db import migrations
from django.db.migrations.loader import MigrationLoader

from django_pgqueue.conf import APP_LABEL
from django_pgqueue.functions import sql_files
from django_pgqueue.functions.installed import needed, version_after
from django_pgqueue.functions.upgrade import (
    BEGIN_ALONE,
    END_ALONE,
    WITH_LIMITS,
    WITHOUT_LIMITS,
    Install,
    Upgrade,
    at_once,
    drop_unfinished,
    index_of,
)
from tests.support.released_sql import MIGRATIONS

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from pathlib import Path

PACKAGE = "django_pgqueue.migrations"
END = re.compile(r"(?P<other>--[^\n]*|\$(?P<tag>\w*)\$.*?\$(?P=tag)\$|'[^']*'|\"[^\"]*\")|;", re.DOTALL)
"""The end of a statement, and what may have a semicolon in it."""

TEXT = r"""-- Upgrades the queue in the first schema of the search_path to the release of these files, without Django:
--   psql -f sql/upgrade.sql
-- All or nothing, release by release, and indexes after that.  It does what is due, says what that was, and may be run
-- again.  It waits for tables that are in use, but never for so long at a time that others wait behind it.  Where long
-- transactions overlap, it has to wait for longer than they take:
--   PGOPTIONS='-c pgqueue.upgrade_lock_ms=1000' psql -f sql/upgrade.sql
-- If you use roles.sql, run that again for new functions.
-- Written by python -m tests.support.upgrade_sql, from the migrations and the other files: change those.
\set ON_ERROR_STOP on
\set AUTOCOMMIT on

{without_limits}
{begin_alone}

select current_schema() as schema, coalesce((
    select coalesce((
        select substring(p.prosrc from 'select ''([0-9]+[.][0-9]+[.][0-9]+)''') from pg_proc p
        where p.pronamespace = c.relnamespace and p.proname = 'pgqueue_version'
    ), '{first}')
    from pg_class c where c.oid = to_regclass(quote_ident(current_schema()) || '.pgqueue_message')
), '') as installed \gset
select :'installed' = '' as is_missing, string_to_array(:'installed', '.')::integer[] > {needed_array} as is_newer,
       string_to_array(:'installed', '.')::integer[] = {needed_array} as is_current \gset

-- The tables and functions of each release.
select coalesce(string_agg(w.name, ', ' order by w.name), '') as missing, count(*) > 0 as is_half
from (values
{parts}
) as r (version, names)
cross join lateral unnest(r.names) as w (name)
where r.version = :'installed'
  and to_regclass(quote_ident(current_schema()) || '.' || w.name) is null
  and not exists (
      select from pg_proc p join pg_namespace n on n.oid = p.pronamespace
      where n.nspname = current_schema() and p.proname = w.name
  ) \gset

\if :is_missing
do $$
begin
    raise exception 'there is no queue in the schema %', current_schema()
        using hint = coalesce((
            select format('The search_path finds one in %s: set the search_path to that schema alone.',
                          c.relnamespace::regnamespace)
            from pg_class c where c.oid = to_regclass('pgqueue_message')
        ), 'To make one: psql -f sql/install.sql');
end
$$;
\elif :is_half
select set_config('pgqueue.missing', :'missing', false) as missing \gset
do $$
begin
    raise exception 'the queue in the schema % lacks %', current_schema(), current_setting('pgqueue.missing')
        using hint = coalesce((
            select format('Its functions are in the schema %s: psql -f sql/repin.sql moves them to its tables.',
                          min(p.pronamespace::regnamespace::text))
            from pg_proc p
            where p.proname = 'pgqueue_message_create'
              and not exists (
                select from pg_proc o
                where o.pronamespace = to_regnamespace(quote_ident(current_schema())) and o.proname = p.proname)
              and not exists (
                select from pg_class t where t.relnamespace = p.pronamespace and t.relname = 'pgqueue_message')
            having count(*) > 0
        ), 'Restore it from sql/ of its release. Only if you need no message of it: psql -f sql/uninstall.sql');
end
$$;
\elif :is_newer
\echo The queue in the schema :schema is that of :installed, newer than these files ({needed}). Nothing was done.
\elif :is_current
\echo The queue in the schema :schema is that of {needed}. Nothing was done.
\else
{steps}
\echo The queue in the schema :schema was that of :installed, and is that of {needed} now.
\endif
{afterwards}
{end_alone}
{with_limits}
"""

AFTERWARDS = r"""
-- What {migration} leaves for afterwards: it takes long, and keeps nobody waiting.
select string_to_array(:'installed', '.')::integer[] <= {until_array} as is_left \gset
\if :is_left
set client_min_messages = warning;
{statements}
reset client_min_messages;
\endif
"""

STEP = r"""
-- From {since}: {migration}.  One query, and so one transaction: nobody can enqueue from its lock to its end.
select string_to_array(:'installed', '.')::integer[] <= {since_array} as is_due \gset
\if :is_due
{statements}
\echo From {since}: {migration}.
\endif
"""


def write() -> Path:
    file = sql_files.folder() / "upgrade.sql"
    file.write_text(text(), encoding="utf-8")
    return file


def text(folder: Path = MIGRATIONS, package: str = PACKAGE) -> str:
    """Returns what sql/upgrade.sql has to be."""
    return TEXT.format(
        first=sql_files.FIRST,
        needed=needed(),
        needed_array=array(needed()),
        parts=",\n".join(parts()),
        steps="".join(steps(folder, package)),
        afterwards="".join(afterwards(folder, package)),
        without_limits=WITHOUT_LIMITS,
        begin_alone=BEGIN_ALONE,
        end_alone=END_ALONE,
        with_limits=WITH_LIMITS,
    )


def parts() -> Iterator[str]:
    """Yields the tables and functions of each release, and of today."""
    for version in dict.fromkeys([*sql_files.releases(), needed()]):
        yield f"    ('{version}', array[{', '.join(map(quoted, sql_files.parts(version)))}])"


def steps(folder: Path, package: str) -> Iterator[str]:
    for name, migration in named_upgrades(folder, package):
        yield STEP.format(
            since=migration.since,
            since_array=array(migration.since),
            migration=name,
            statements=one_query(at_once(migration.locks, chain(*map(statements, migration.operations)))),
        )


def afterwards(folder: Path, package: str) -> Iterator[str]:
    for name, migration in named_upgrades(folder, package):
        if migration.afterwards:
            yield AFTERWARDS.format(
                migration=name,
                until_array=array(version_after(migration.since)),
                statements="\n".join(map(afterwards_one, migration.afterwards)),
            )


def afterwards_one(statement: str) -> str:
    text, index = statement.strip().removesuffix(";") + ";", index_of(statement)
    return text if index is None else f"{drop_unfinished(index)} \\gexec\n{text}"


def named_upgrades(folder: Path, package: str) -> Iterator[tuple[str, type[Upgrade]]]:
    for file in sorted(folder.glob("[0-9]*.py")):
        migration = importlib.import_module(f"{package}.{file.stem}").Migration
        if issubclass(migration, Upgrade):
            yield file.stem, migration


def statements(operation: Any) -> Iterator[str]:
    """Yields what psql runs for an operation."""
    if isinstance(operation, migrations.SeparateDatabaseAndState):
        yield from chain(*map(statements, operation.database_operations))
    elif isinstance(operation, migrations.RunSQL):
        for statement in [operation.sql] if isinstance(operation.sql, str) else operation.sql:
            if not isinstance(statement, str):
                message = f"{operation}: upgrade.sql can have no parameters."
                raise TypeError(message)
            if statement.strip():
                yield statement.strip().removesuffix(";") + ";"
    else:
        message = f"{operation}: upgrade.sql can have no operation but RunSQL."
        raise TypeError(message)


def one_query(statements: Iterable[str]) -> str:
    r"""Returns what psql sends at once.

    >>> print(one_query(["drop table a; -- why; so", "do $$ begin return; end $$;"]))
    drop table a\; -- why; so
    do $$ begin return; end $$;
    """
    text = END.sub(lambda found: found["other"] or r"\;", "\n".join(map(str.strip, statements)))
    return text.removesuffix(r"\;") + ";"


def upgrades() -> list[type[Upgrade]]:
    """The migrations after the first one, of the package or of those that the settings name."""
    loaded = MigrationLoader(None).disk_migrations
    first, *others = [type(loaded[key]) for key in sorted(loaded) if key[0] == APP_LABEL]
    assert issubclass(first, Install)
    found = [migration for migration in others if issubclass(migration, Upgrade)]
    assert found == others
    return found


def run_by(operation: Any) -> Iterator[str]:
    """The statements of an operation, as the migration runs them."""
    if isinstance(operation, migrations.SeparateDatabaseAndState):
        yield from chain(*map(run_by, operation.database_operations))
    else:
        for statement in [operation.sql] if isinstance(operation.sql, str) else operation.sql:
            yield statement.rstrip().removesuffix(";") + ";"


def array(version: str) -> str:
    return quoted("{" + ", ".join(map(str, sql_files.number(version))) + "}") + "::integer[]"


def quoted(value: str) -> str:
    return f"'{value}'"


if __name__ == "__main__":
    settings.configure(INSTALLED_APPS=["django_pgqueue"])  # migrations import the models
    django.setup()
    print(f"Written: {write()}")
