"""The migrations make of a queue of any release that of today: see docs/pages/contributing/change-sql.md."""

from __future__ import annotations

import importlib
import os
import re
import shutil
import subprocess
import sys
import threading
import tomllib
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from functools import partial
from typing import TYPE_CHECKING, Any

import psycopg
import pytest
from django.db import DatabaseError
from psycopg.conninfo import conninfo_to_dict

from django_pgqueue.conf import APP_LABEL
from django_pgqueue.exceptions import HalfInstalled, OutdatedQueue
from django_pgqueue.functions import sql_files, upgrade
from django_pgqueue.functions.installed import installed_queue, needed, require_queue
from django_pgqueue.functions.pins import strayed
from django_pgqueue.functions.replace_function import HEAD, ReplaceFunction, drops
from tests.support import upgrade_sql
from tests.support.address import process_variables
from tests.support.change_sql import VERSION, change
from tests.support.databases import described, empty_database, install, migrate, psql, session_in
from tests.support.pages import ROOT
from tests.support.released_sql import MIGRATIONS, in_force, is_function, ship, unfinished
from tests.support.sessions import end_one
from tests.support.waiting import wait_until

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator
    from pathlib import Path

    from pytest_django import Settings

    from tests.support.sessions import Session

FAIL = "pgqueue_message_fail"
RUN = "Run: python -m tests.support.change_sql {name}"
NOT_KEPT = "{name}.sql is not the text that 0.1.0 has shipped, and that one is not kept. " + RUN
NOT_REPLACED = "{name}.sql has changed since 0.1.0, and no migration replaces it. " + RUN


@contextmanager
def queue_of(conninfo: str, release: str | None = None, name: str = "old") -> Iterator[tuple[str, Session]]:
    """A database with the queue of a release, or of today, and a session in it."""
    with empty_database(conninfo, name) as database, session_in(database) as session:
        install(session, release)
        yield database, session


def of_today(conninfo: str) -> dict[str, list[str]]:
    with queue_of(conninfo, name="fresh") as (_, session):
        return described(session)


def left_in(session: Session, schema: str = "public") -> dict[str, list[str]]:
    return {kind: found for kind, found in described(session, schema).items() if found}


def run_file(database: str, name: str, *options: str, search_path: str | None = None) -> str:
    """Run a file of sql/ in psql without any warning, and return its output."""
    done = psql(database, *options, "-f", str(sql_files.folder() / f"{name}.sql"), search_path=search_path)
    assert (done.returncode, done.stderr) == (0, "")
    return done.stdout


UPGRADE_BY: dict[str, Callable[..., Any]] = {"migrate": migrate, "psql": partial(run_file, name="upgrade")}
by_each = pytest.mark.parametrize("by", UPGRADE_BY)


def upgraded(conninfo: str, release: str, today: dict[str, list[str]]) -> None:
    """A queue of ``release`` becomes the one of today, and goes back to what it was and to nothing."""
    with queue_of(conninfo, release) as (old, session):
        before = described(session)
        migrate(old)  # takes note of what is there, and goes on from its release
        assert described(session) == today
        migrate(old, to=sql_files.last_migration(release))
        assert described(session) == before
        migrate(old, back=True)
        assert left_in(session) == {}


def upgrade_by_psql(conninfo: str, release: str, today: dict[str, list[str]], file: str) -> None:
    """A queue of ``release`` becomes the one of today; a second time, there is nothing to do."""
    with queue_of(conninfo, release) as (old, session):
        session.create("kept")
        assert installed_queue(session.connection) is not None
        for _ in range(2):
            said = run_file(old, file)
            assert described(session) == today
        assert "Nothing was done." in said
        assert [message.content for message in session.messages()] == ["kept"]
        migrate(old)  # with Django from now on: there is nothing left to do
        assert described(session) == today


CALLS = """
    select p.proname::text, pg_get_function_result(p.oid),
           array(
               select format_type(t.type, null) from unnest(p.proargtypes) with ordinality as t (type, place)
               order by t.place
           )::text[],
           coalesce(p.proargnames[:p.pronargs], '{}'::text[]), p.pronargdefaults::integer
    from pg_proc p
    where p.pronamespace = 'public'::regnamespace and p.prokind = 'f' and p.prorettype <> 'trigger'::regtype
"""


def can_be_called(before: tuple[Any, ...], now: tuple[Any, ...]) -> bool:
    """Whether a call that was written for ``before`` finds ``now``, and gets the same columns."""
    name, result, types, names, _ = before
    new_name, new_result, new_types, new_names, defaults = now
    return (name, result, types, names) == (
        new_name,
        new_result,
        new_types[: len(types)],
        new_names[: len(names)],
    ) and len(new_types) - len(types) <= defaults


@contextmanager
def locks_held_by(migration: type[upgrade.Upgrade], conninfo: str) -> Iterator[list[Any]]:
    """The tables on which the migration has locks at its end that keep others from writing."""
    query = """
        select c.oid::bigint as oid, c.relname::text as name
        from pg_locks l join pg_class c on c.oid = l.relation
        where l.pid = pg_backend_pid() and c.relkind in ('r', 'p') and c.relnamespace = 'public'::regnamespace
          and not c.relispartition
          and l.mode in ('ShareLock', 'ShareRowExclusiveLock', 'ExclusiveLock', 'AccessExclusiveLock')
    """
    with session_in(conninfo) as session, session.connection.transaction(force_rollback=True):
        statements = [statement for operation in migration.operations for statement in upgrade_sql.run_by(operation)]
        session.connection.execute("\n".join(statements))
        yield session.rows(query)


def test_an_upgrade_of_every_release_has_the_current_texts() -> None:
    assert unfinished() == []


def test_the_first_migration_is_that_of_the_first_release() -> None:
    first = importlib.import_module("django_pgqueue.migrations.0001_initial").RELEASE
    assert sql_files.releases()[0] == sql_files.FIRST == first


def test_a_queue_of_every_release_becomes_the_current_one(conninfo: str) -> None:
    today = of_today(conninfo)
    for release in sql_files.releases():
        upgraded(conninfo, release, today)


def test_each_migration_of_an_upgrade_names_its_release_and_the_last_one_the_new_version() -> None:
    """Upgrades would be left out otherwise: the version decides what is due."""
    found = upgrade_sql.upgrades()
    for release in {migration.since for migration in found}:
        steps = [migration for migration in found if migration.since == release]
        says = [any(getattr(one, "name", "") == VERSION for one in step.operations) for step in steps]
        assert says == [False] * (len(steps) - 1) + [True], f"the migrations since {release}"
    assert {migration.since for migration in found} <= set(sql_files.releases())


def test_the_version_of_the_sql_is_that_of_the_coming_release() -> None:
    release = sql_files.releases()[-1]
    if in_force() != sql_files.shipped(release):
        written = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]["version"]
        assert needed() == written, f"Write {written} into {VERSION}.sql"


def test_upgrade_sql_is_made_of_the_migrations() -> None:
    written = sql_files.current("upgrade")
    assert written == upgrade_sql.text(), "Run: python -m tests.support.upgrade_sql"


@pytest.mark.parametrize("file", ["upgrade", "install"])
def test_psql_upgrades_a_queue_of_every_release_to_the_current_one(conninfo: str, file: str) -> None:
    today = of_today(conninfo)
    for release in sql_files.releases():
        upgrade_by_psql(conninfo, release, today, file)


def test_the_code_of_a_release_finds_its_functions_in_the_current_queue(conninfo: str) -> None:
    """Old workers and old web processes go on while the new ones start."""
    for release in sql_files.releases():
        with queue_of(conninfo, release) as (old, session):
            before = [tuple(row) for row in session.rows(CALLS)]
            migrate(old)
            after = [tuple(row) for row in session.rows(CALLS)]
        lost = [call for call in before if not any(can_be_called(call, now) for now in after)]
        assert sorted(lost) == []


def test_an_upgrade_locks_the_tables_that_it_names_and_no_others(conninfo: str) -> None:
    for migration in upgrade_sql.upgrades():
        with queue_of(conninfo, migration.since) as (old, session):
            there = set(session.column("select oid::bigint from pg_class"))
            with locks_held_by(migration, old) as held:
                locked = {row.name for row in held if row.oid in there}
        assert locked == set(migration.locks)


@pytest.mark.parametrize("name", [name for name in sql_files.install_order() if is_function(name)])
def test_the_upgrade_finds_head_and_drop_statement_of_each_function(name: str) -> None:
    text = sql_files.current(name)
    assert text.count("create or replace function ") == len(HEAD.findall(text)) == len(drops(name))


# What is there already.


def test_migrate_records_a_queue_that_psql_has_installed(conninfo: str) -> None:
    with empty_database(conninfo, "by_psql") as database, session_in(database) as session:
        run_file(database, "install")
        session.create("kept")
        before = described(session)
        migrate(database)
        assert described(session) == before
        assert [message.content for message in session.messages()] == ["kept"]
        recorded = session.column("select name::text from django_migrations where app = 'django_pgqueue' order by id")
        assert recorded == sorted(file.stem for file in MIGRATIONS.glob("0*.py"))
        migrate(database, back=True)
        assert left_in(session) == {}


WITHOUT_MIGRATIONS = """
import django
from django.conf import settings
settings.MIGRATION_MODULES = {"django_pgqueue": None}
django.setup()
from django.core.management import call_command
from tests.support.site.tasks import write
call_command("migrate", run_syncdb=True, verbosity=0)
write.enqueue("kept")
call_command("migrate", run_syncdb=True, verbosity=0)
"""


def test_without_migrations_the_queue_is_there_too(conninfo: str) -> None:
    """As `pytest --no-migrations` makes a database: from models, which know none of the functions."""
    today = of_today(conninfo)
    with empty_database(conninfo, "synced") as database, session_in(database) as session:
        variables = process_variables(str(conninfo_to_dict(database)["dbname"]))
        command = [sys.executable, "-c", WITHOUT_MIGRATIONS]
        done = subprocess.run(
            command, cwd=ROOT, env=os.environ | variables, capture_output=True, text=True, check=False
        )
        assert done.returncode == 0, done.stderr
        assert len(session.messages()) == 1
        there = described(session)
        assert {kind: [row for row in rows if row in there[kind]] for kind, rows in today.items()} == today


@pytest.mark.parametrize(
    ("gone", "words"),
    [
        ("drop table pgqueue_schedule cascade", "parts of a queue, but lacks pgqueue_schedule. Nothing was changed."),
        ("drop table pgqueue_message cascade", "parts of a queue, but lacks pgqueue_message"),
        ("drop function pgqueue_queue_pause(text, text)", "parts of a queue, but lacks pgqueue_queue_pause."),
    ],
)
def test_an_incomplete_queue_is_an_error_with_the_next_step(conninfo: str, gone: str, words: str) -> None:
    with queue_of(conninfo) as (database, session):
        session.rows(gone)
        before = described(session)
        with pytest.raises(HalfInstalled, match=r"psql -f sql/uninstall\.sql") as raised:
            migrate(database)
        assert words in str(raised.value)
        assert described(session) == before
        done = psql(database, "-f", str(sql_files.folder() / "install.sql"))
        assert done.returncode != 0
        assert "psql -f sql/uninstall.sql" in done.stderr
        assert described(session) == before


def test_a_queue_in_another_schema_is_not_upgraded(conninfo: str) -> None:
    """Two installations in one database are upgraded each for itself."""
    with queue_of(conninfo) as (database, session):
        session.rows("create schema shop")
        session.rows("set search_path = shop")
        install(session, "0.1.0")
        session.rows("set search_path = shop, public")
        found = installed_queue(session.connection)
        assert found is not None
        assert (found.schema, found.version) == ("shop", "0.1.0")

        said = run_file(database, "upgrade", search_path="shop,public")
        assert f"The queue in the schema shop was that of 0.1.0, and is that of {needed()} now." in said
        session.rows("set search_path = pg_catalog")
        assert described(session, "shop") == described(session, "public")

        session.rows("create schema other")
        migrate(database, search_path="shop")
        session.rows("delete from shop.django_migrations where name like '0002%%'", {})
        with pytest.raises(HalfInstalled, match="It finds one in 'shop', and nothing was changed"):
            migrate(database, search_path="other,shop")
        done = psql(database, "-f", str(sql_files.folder() / "upgrade.sql"), search_path="other,shop")
        assert done.returncode != 0
        assert "there is no queue in the schema other" in done.stderr
        assert "The search_path finds one in shop" in done.stderr


@by_each
def test_the_schema_may_have_a_name_that_needs_quotes(conninfo: str, by: str) -> None:
    name = "My Jobs"
    with queue_of(conninfo) as (database, session):
        session.rows(f'create schema "{name}"')
        session.rows(f'set search_path = "{name}"')
        install(session, "0.1.0")
        for _ in range(2):
            UPGRADE_BY[by](database, search_path=f'"{name}"')
            session.rows("set search_path = pg_catalog")
            assert described(session, f'"{name}"') == described(session, "public")
        if by == "migrate":
            migrate(database, back=True, search_path=f'"{name}"')
            assert left_in(session, f'"{name}"') == {}


@by_each
def test_a_function_of_the_project_that_holds_one_fast_changes_nothing(conninfo: str, by: str) -> None:
    """PostgreSQL notes what a body with begin atomic calls.  docs/pages/operate/upgrade.md has the remedy."""
    own = """create function enqueue_order(p_id bigint) returns bigint language sql
        begin atomic select pgqueue_message_create(jsonb_build_object('order', p_id), 'mail'); end"""
    with queue_of(conninfo, "0.1.0") as (database, session):
        session.rows(own)
        before = described(session)
        with pytest.raises((DatabaseError, AssertionError), match=r"enqueue_order\(bigint\) depends|jects too"):
            UPGRADE_BY[by](database)
        assert described(session) == before
        session.rows("drop function enqueue_order(bigint)")
        UPGRADE_BY[by](database)
        session.rows(own)
        assert session.one("select enqueue_order(7)") == session.messages()[0].id


def test_a_newer_queue_is_left_alone(conninfo: str) -> None:
    with queue_of(conninfo) as (database, session):
        session.rows(sql_files.current(VERSION).replace(needed(), "99.0.0"))
        before = described(session)
        said = run_file(database, "upgrade")
        assert f"that of 99.0.0, newer than these files ({needed()}). Nothing was done." in said
        migrate(database)
        assert described(session) == before


def test_all_changes_of_an_upgrade_are_sent_at_once(conninfo: str) -> None:
    """Nobody can enqueue between its first lock and its commit: Python may not take its time in there."""
    changes = re.compile(r"\b(create|alter|drop) (or replace )?(function|table|index|trigger)\b")
    with empty_database(conninfo, "at_once") as database:
        migrate(database, to="0001_initial")
        later = {one for migration in upgrade_sql.upgrades() for one in migration.afterwards}
        later |= {upgrade.drop_unfinished(name) for name in map(upgrade.index_of, later) if name is not None}
        later |= {one for migration in upgrade_sql.upgrades() for one in migration.after_the_way_back}
        there = [sent for sent in migrate(database) if changes.search(sent) and sent not in later]
        back = [sent for sent in migrate(database, to="0001_initial") if changes.search(sent) and sent not in later]
    assert len(there) == len(upgrade_sql.upgrades())
    # Back, the functions change first, while the columns that they use are still there.
    of_tables = [statement for statement in back if f"drop function if exists {VERSION}()" in statement]
    assert len(of_tables) == len(upgrade_sql.upgrades())
    of_functions = [statement for statement in back if statement not in of_tables]
    assert [statement for statement in of_functions if re.search("^alter table", statement, re.MULTILINE)] == []
    for statement in [*there, *of_tables]:  # nothing reads or writes a whole table under the lock
        assert re.findall(r"^(?:update|delete|validate) .*", statement, re.MULTILINE) == []
        on_messages = re.findall(r"^alter table pgqueue_message\n[^;]* check [^;]*;", statement, re.MULTILINE)
        assert [one for one in on_messages if not re.search(r"not valid\s*;$", one)] == []


def test_an_upgrade_reads_no_message_while_it_holds_its_locks(conninfo: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """There and back: nobody waits longer where there are more messages."""
    note = """
        insert into noted
        select relname, {} * (coalesce(seq_tup_read, 0) + coalesce(idx_tup_fetch, 0)) from pg_stat_xact_user_tables
        where relname ~ '^pgqueue_(message|attempt)';
    """
    send = upgrade.Upgrade._send

    def send_and_note(self: upgrade.Upgrade, schema_editor: Any, statements: Iterable[str]) -> None:
        send(self, schema_editor, [note.format(-1), *statements, note.format(1)])

    monkeypatch.setattr(upgrade.Upgrade, "_send", send_and_note)
    monkeypatch.setattr(upgrade, "IN_FLIGHT_SECONDS", 0)
    for release in sql_files.releases():
        with queue_of(conninfo, release) as (database, session):
            session.create_batch(100)
            end_one(session)
            session.rows("create table noted (name text, rows bigint)")
            migrate(database)
            migrate(database, to=sql_files.last_migration(release))
            assert "pgqueue_message" in session.column("select name from noted")
            assert session.rows("select name, sum(rows) from noted group by name having sum(rows) > 0") == []


def test_psql_sends_all_changes_of_an_upgrade_at_once(conninfo: str) -> None:
    """From the first lock to the last right, and the commit with it: each query more is a round trip under the lock."""
    with queue_of(conninfo, "0.1.0") as (database, session):
        for setting in ("log_statement = 'all'", "client_min_messages = log"):
            session.rows(f"alter database {session.one('select current_database()')} set {setting}")
        done = psql(database, "-f", str(sql_files.folder() / "upgrade.sql"))
        assert done.returncode == 0, done.stderr
    sent = re.split(r"^.*\bLOG:  ", done.stderr, flags=re.MULTILINE)
    changes = [one for one in sent if re.search("access exclusive|create or replace|alter function", one)]
    assert len(changes) == len(upgrade_sql.upgrades())
    for one in changes:
        assert one.index("access exclusive") < one.index(VERSION) < one.rindex("alter function %s")
    assert [one for one in sent if re.match(r"statement:\s*(begin|start|commit)\b", one)] == []


def test_psql_upgrades_where_a_psqlrc_turns_autocommit_off(conninfo: str) -> None:
    off = ("-v", "AUTOCOMMIT=off")
    with (
        empty_database(conninfo, "fresh") as fresh,
        session_in(fresh) as installed,
        queue_of(conninfo, "0.1.0") as (old, session),
    ):
        run_file(fresh, "install", *off)
        run_file(old, "upgrade", *off)
        assert described(session) == described(installed)
        done = psql(old, *off, "-f", str(sql_files.folder() / "uninstall.sql"))
        assert done.returncode == 0, done.stderr
        assert left_in(session) == {}


@by_each
def test_concurrent_upgrades_wait_only_for_each_other(conninfo: str, by: str) -> None:
    """The one that upgrades builds indexes, and waits for every transaction that is open meanwhile."""
    waiting = "select count(*) from pg_stat_activity where datname = current_database() and wait_event = 'PgSleep'"
    with queue_of(conninfo, "0.1.0") as (old, session), ThreadPoolExecutor(3) as threads:
        migrate(old, to="0001_initial")
        session.rows(upgrade.BEGIN_ALONE)
        started = [threads.submit(UPGRADE_BY[by], old) for _ in range(3)]
        wait_until(lambda: session.one(waiting) == 3, "all wait", 60)
        session.rows("set statement_timeout = '30s'")
        try:
            session.rows("create index concurrently built_ix on pgqueue_message (content)")
            session.rows("drop index concurrently built_ix")
        finally:
            session.rows(upgrade.END_ALONE)
        for one in started:
            one.result(120)
        assert described(session) == of_today(conninfo)


@by_each
def test_the_time_limits_of_a_login_are_not_those_of_an_upgrade(conninfo: str, by: str) -> None:
    """An index waits for all transactions that are older."""
    waiting = """
        select pid from pg_stat_activity where datname = current_database() and wait_event = 'virtualxid'
           and query_start < clock_timestamp() - interval '1.5 s'
    """
    limits = ("statement_timeout", "lock_timeout")
    with (
        queue_of(conninfo, "0.1.0") as (old, session),
        session_in(old) as reader,
        ThreadPoolExecutor(1) as threads,
    ):
        migrate(old, to="0001_initial")
        for limit in limits:
            session.rows(f"alter database {session.one('select current_database()')} set {limit} = '1s'")
        reader.rows("begin isolation level repeatable read")
        reader.rows("select 1")
        upgraded = threads.submit(UPGRADE_BY[by], old)
        wait_until(lambda: upgraded.done() or session.rows(waiting), "an index waits", 60)
        reader.rows("rollback")
        upgraded.result(120)
        assert described(session) == of_today(conninfo)
        reader.rows("set lock_timeout = '1s'")
        for statement, limit in ((upgrade.WITHOUT_LIMITS, "0"), (upgrade.WITH_LIMITS, "1s")):
            reader.rows(statement)
            assert reader.one("show lock_timeout") == limit


def test_an_upgrade_that_waits_for_another_one_too_long_names_it(conninfo: str) -> None:
    with (
        empty_database(conninfo, "busy") as database,
        session_in(database) as session,
        session_in(database) as other,
    ):
        session.rows(upgrade.BEGIN_ALONE)
        impatient = upgrade.BEGIN_ALONE.replace("'600 s'", "'0 s'")
        assert impatient != upgrade.BEGIN_ALONE
        with pytest.raises(psycopg.errors.LockNotAvailable, match=rf"^session {session.pid} \(idle since ") as raised:
            other.rows(impatient)
        assert f"pg_terminate_backend({session.pid})" in str(raised.value.diag.message_hint)
        session.rows(upgrade.END_ALONE)
        other.rows(impatient)


@by_each
def test_an_invalid_index_is_recreated(conninfo: str, by: str) -> None:
    """Where the build was interrupted, an index of the name is there and no query uses it."""
    valid = (
        "select bool_and(indisvalid) from pg_index "
        "where indexrelid::regclass::text in ('pgqueue_message_parked_ix', 'pgqueue_message_unknown_ix')"
    )
    with empty_database(conninfo, "unfinished") as database, session_in(database) as session:
        migrate(database)
        session.rows("update pg_index set indisvalid = false where indexrelid = 'pgqueue_message_parked_ix'::regclass")
        session.rows("delete from django_migrations where app = 'django_pgqueue' and name like '0002%%'", {})
        assert session.one(valid) is False
        UPGRADE_BY[by](database)
        assert session.one(valid) is True


def test_replaced_functions_keep_their_rights(conninfo: str) -> None:
    """From the upgrade until sql/roles.sql is run again, old code goes on, and nobody else gets a right."""
    pause, resume = "pgqueue_queue_pause", "pgqueue_queue_resume"
    rights = """
        select p.proname::text as name, p.prosecdef as as_owner, p.proconfig::text like '%pg_temp%' as is_pinned,
               has_function_privilege('pg_monitor', p.oid, 'execute') as for_monitor,
               has_function_privilege('pg_read_all_data', p.oid, 'execute') as for_others
        from pg_proc p where p.proname in ('pgqueue_queue_pause', 'pgqueue_queue_resume', 'pgqueue_now') order by 1
    """
    with queue_of(conninfo) as (_, session):
        for name in (pause, resume):
            session.rows(f"alter function {name} security definer set search_path = public, pg_temp")
            session.rows(f"revoke all on function {name} from public")
            session.rows(f"grant execute on function {name} to pg_monitor")
        before = session.rows(rights)
        other_parameters = sql_files.current(resume).replace(
            "(p_queue text)", "(p_queue text, p_why text default null)"
        )
        assert other_parameters != sql_files.current(resume)
        statements = [sql_files.current(pause), *drops(resume), other_parameters, sql_files.current("pgqueue_now")]
        with session.connection.transaction():
            session.connection.execute("\n".join(upgrade.at_once([], statements)))
        assert session.rows(rights) == before
        assert [(row.name, row.as_owner, row.for_monitor, row.for_others) for row in before] == [
            ("pgqueue_now", False, True, True),
            (pause, True, True, False),
            (resume, True, True, False),
        ]


def test_no_function_searches_temporary_tables_first_after_an_upgrade(conninfo: str) -> None:
    """Functions with the rights of the owner call others, which must not read what a login has made."""
    searching = (
        "select oid::regprocedure::text from pg_proc where proname ~ '^pgqueue' and proconfig::text ~ 'search_path='"
    )
    open_ones = f"{searching} and proconfig::text !~ 'pg_temp' order by 1"
    new = "create function pgqueue_new() returns bigint language sql set search_path from current as 'select 1';"
    with queue_of(conninfo) as (_, session):
        changed = [sql_files.current("pgqueue_worker_wake"), new]
        with session.connection.transaction(force_rollback=True):
            session.connection.execute("\n".join(upgrade.at_once([], changed)))
            assert "pgqueue_new()" in session.column(open_ones), "roles.sql has not been run here"
        for signature in session.column(searching):
            session.rows(f"alter function {signature} set search_path = public, pg_temp")
        with session.connection.transaction():
            session.connection.execute("\n".join(upgrade.at_once([], changed)))
        assert session.column(open_ones) == []


def test_an_upgrade_does_not_queue_up_behind_a_long_transaction(conninfo: str) -> None:
    """It would keep all others waiting behind it."""
    with (
        queue_of(conninfo) as (database, session),
        session_in(database) as reader,
        session_in(database) as upgrading,
    ):
        reader.connection.autocommit = False
        reader.rows("select count(*) from pgqueue_message")
        upgrading.connection.autocommit = False
        patience = upgrade.lock(["pgqueue_message"]).replace(f"{upgrade.PATIENCE_SECONDS} s'", "1 s'")
        with pytest.raises(psycopg.errors.LockNotAvailable, match=rf"by session {reader.pid} \(idle in transaction"):
            upgrading.connection.execute(patience)
        upgrading.rollback()
        session.create()  # nobody waits for the one that has given up

        waits = threading.Thread(target=upgrading.connection.execute, args=[upgrade.lock(["pgqueue_message"])])
        waits.start()
        pauses = "select count(*) from pg_stat_activity where wait_event = 'PgSleep'"
        wait_until(lambda: session.one(pauses), "the upgrade lets others pass")
        reader.rollback()
        waits.join(60)
        assert upgrading.one(
            "select count(*) from pg_locks where pid = pg_backend_pid() and mode = 'AccessExclusiveLock'"
        )
        assert upgrading.one("show lock_timeout") == "0"
        upgrading.rollback()


def test_an_upgrade_may_wait_longer_while_transactions_overlap(conninfo: str) -> None:
    """Someone has the table at any time."""

    def use(session: Session, ended: threading.Event) -> None:
        while not ended.is_set():
            with session.connection.transaction():
                session.rows("select count(*) from pgqueue_message")
                ended.wait(0.3)

    ended = threading.Event()
    with (
        queue_of(conninfo) as (database, upgrading),
        session_in(database) as one,
        session_in(database) as two,
        session_in(database) as three,
        ThreadPoolExecutor(3) as threads,
    ):
        lock = upgrade.lock(["pgqueue_message"])
        upgrading.rows("set pgqueue.upgrade_lock_ms = '1s'")
        with pytest.raises(psycopg.errors.RaiseException, match=r"pgqueue\.upgrade_lock_ms is '1s'"):
            upgrading.rows(lock)
        try:
            users = []
            for session in (one, two, three):
                users.append(threads.submit(use, session, ended))
                ended.wait(0.1)
            upgrading.rows("set pgqueue.upgrade_lock_ms = 20000")
            upgrading.rows(lock)
        finally:
            ended.set()
        for user in users:
            user.result(60)


def test_an_upgrade_that_waits_long_holds_nothing_meanwhile(conninfo: str) -> None:
    """A transaction that has enqueued reads the workers after that: it would be a deadlock."""
    with (
        queue_of(conninfo) as (database, upgrading),
        session_in(database) as user,
        session_in(database) as session,
        ThreadPoolExecutor(1) as threads,
    ):
        upgrading.rows("set pgqueue.upgrade_lock_ms = 60000")
        user.rows("set statement_timeout = '20s'")
        with user.connection.transaction():
            user.rows("delete from pgqueue_message")
            locks = upgrade.lock(upgrade_sql.upgrades()[-1].locks).replace(
                f"v_lock_ms integer := {upgrade.FIRST_WAIT_MS}", "v_lock_ms integer := 60000"
            )
            waits = threads.submit(upgrading.rows, locks)
            wait_until(
                lambda: (
                    session.one("select count(*) from pg_locks where pid = %s and not granted", [upgrading.pid]) == 1
                ),
                "the upgrade waits",
            )
            user.rows("select count(*) from pgqueue_worker")
        waits.result(60)


# The same, with releases that are made up: a copy of sql/ and of the migrations, which ship and change.


class Project:
    def __init__(self, root: Path, package: str) -> None:
        self.root, self.package = root, package
        self.sql, self.migrations = root / "sql", root / package

    def edit(self, name: str, text: str, instead: str) -> None:
        path = sql_files.path(name)
        assert path.read_text().count(text) == 1
        path.write_text(path.read_text().replace(text, instead))

    def reword(self, name: str, words: str) -> None:
        """Changes a text, and nothing of what it does."""
        self.edit(name, "as $$\n", f"as $$\n    -- {words}\n")

    def change(self, name: str) -> list[str]:
        return list(change(name, self.migrations))

    def unfinished(self) -> list[str]:
        self.forget()
        return unfinished()

    def upgrade(self, conninfo: str, *releases: str) -> None:
        self.forget()
        today = of_today(conninfo)
        for release in releases:
            upgraded(conninfo, release, today)
        (self.sql / "upgrade.sql").write_text(upgrade_sql.text(self.migrations, self.package))
        for release in releases:
            upgrade_by_psql(conninfo, release, today, "upgrade")

    def forget(self) -> None:
        """The migrations read the texts when they are imported."""
        for name in [name for name in sys.modules if name.split(".")[0] == self.package]:
            del sys.modules[name]
        importlib.invalidate_caches()


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, settings: Settings) -> Project:
    """A checkout before its first release."""
    made = Project(tmp_path, "migrations_of_a_made_up_project")
    shutil.copytree(sql_files.folder(), made.sql, ignore=shutil.ignore_patterns("released"))
    made.migrations.mkdir()
    for name in ("__init__.py", "0001_initial.py"):
        shutil.copy(MIGRATIONS / name, made.migrations)
    monkeypatch.setattr(sql_files, "folder", lambda: made.sql)
    made.edit(VERSION, f"'{needed()}'", "'0.1.0'")
    monkeypatch.setattr(sys, "dont_write_bytecode", True)
    monkeypatch.syspath_prepend(tmp_path)
    settings.MIGRATION_MODULES = {APP_LABEL: made.package}
    return made


def test_before_the_first_release_a_changed_text_needs_no_migration(project: Project) -> None:
    project.reword(FAIL, "Once.")
    assert project.change(FAIL) == ["Nothing has been released: change the text, and that is all."]
    assert project.unfinished() == []


def test_a_changed_text_without_a_migration_is_found(project: Project) -> None:
    ship("0.1.0", project.migrations)
    assert project.unfinished() == []
    project.reword(FAIL, "Once.")
    assert project.unfinished() == [NOT_KEPT.format(name=FAIL)]


def test_a_kept_text_alone_is_not_enough(project: Project) -> None:
    ship("0.1.0", project.migrations)
    project.change(FAIL)
    (project.migrations / "0002_after_0_1_0.py").unlink()
    assert project.unfinished() == [NOT_REPLACED.format(name=VERSION)]
    project.reword(FAIL, "Once.")
    assert project.unfinished() == [NOT_REPLACED.format(name=name) for name in (FAIL, VERSION)]


def test_the_migration_of_the_script_makes_an_old_queue_current(project: Project, conninfo: str) -> None:
    ship("0.1.0", project.migrations)
    made = project.migrations / "0002_after_0_1_0.py"
    operation = 'ReplaceFunction("pgqueue_message_fail", since="0.1.0"),'
    kept, added, _, *of_version = project.change(FAIL)
    assert kept == f"Kept: {project.sql}/released/0.1.0/pgqueue_message_fail.sql"
    assert added == f"Added to {made}: {operation}"
    assert [line.split()[0] for line in of_version] == ["Kept:", "Added"]
    assert needed() == "0.2.0"
    project.reword(FAIL, "Once.")
    assert project.unfinished() == []
    project.upgrade(conninfo, "0.1.0")

    project.change(FAIL)
    project.change("pgqueue_now")
    assert made.read_text().count(operation) == 1
    assert made.read_text().count("ReplaceFunction(") == 3


def test_with_other_parameters_there_is_one_function_in_both_directions(project: Project, conninfo: str) -> None:
    ship("0.1.0", project.migrations)
    project.change(FAIL)
    project.edit(FAIL, "\n) returns", ",\n    p_note text default null\n) returns")
    [drop] = re.findall(rf"^drop function if exists {FAIL}\(.*\);$", sql_files.current("uninstall"), re.MULTILINE)
    project.edit("uninstall", drop, drop.replace(");", ", text);"))
    assert project.unfinished() == [NOT_KEPT.format(name="uninstall")]
    project.edit("uninstall", drop.replace(");", ", text);"), drop)
    project.change("uninstall")
    project.edit("uninstall", drop, drop.replace(");", ", text);"))
    project.edit("uninstall", "\n-- Of today.\n", f"{drop}\n\n-- Of today.\n")
    assert project.unfinished() == []
    project.upgrade(conninfo, "0.1.0")
    replace = ReplaceFunction(FAIL, since="0.1.0")
    assert heads(replace.sql) == [drop, f"create or replace function {FAIL}("]
    assert heads(replace.reverse_sql) == [drop.replace(");", ", text);"), f"create or replace function {FAIL}("]


def heads(texts: Any) -> list[str]:
    return [text.partition("\n")[0] for text in texts]


def test_a_new_and_a_removed_function(project: Project, conninfo: str) -> None:
    ship("0.1.0", project.migrations)
    project.change("uninstall")
    project.change("pgqueue_queue_pause")
    sql_files.path("pgqueue_queue_pause").unlink()
    (project.sql / "queue" / "pgqueue_queue_count.sql").write_text(
        "create or replace function pgqueue_queue_count() returns bigint\nlanguage sql\nset search_path from current\n"
        "as $$ select count(*) from pgqueue_queue $$;\n"
    )
    project.edit("install", "pgqueue_queue_pause.sql", "pgqueue_queue_count.sql")
    project.edit("uninstall", "pgqueue_queue_pause(text, text)", "pgqueue_queue_count()")
    assert project.unfinished() == [NOT_REPLACED.format(name="pgqueue_queue_count")]
    project.change("pgqueue_queue_count")
    assert project.unfinished() == []
    project.upgrade(conninfo, "0.1.0")


def test_a_changed_table_is_altered_by_hand(project: Project, conninfo: str) -> None:
    ship("0.1.0", project.migrations)
    _, left, *_ = project.change("pgqueue_queue")
    made = project.migrations / "0002_after_0_1_0.py"
    assert left == (f"Now alter the table in {made}: RunSQL, with reverse_sql and state_operations. Name it in locks.")
    project.edit("pgqueue_queue", "    paused_by text,\n", "    paused_by text,\n    note      text,\n")
    assert project.unfinished() == []
    with pytest.raises(AssertionError, match="columns"):
        project.upgrade(conninfo, "0.1.0")

    there, back = ("alter table pgqueue_queue " + words for words in ("add column note text", "drop column note"))
    text = made.read_text().replace("\n    ]", f"\n        migrations.RunSQL({there!r}, {back!r}),\n    ]")
    made.write_text(text.replace("locks = ()", 'locks = ("pgqueue_queue",)'))
    project.upgrade(conninfo, "0.1.0")

    # What takes long comes afterwards, and outside of the transaction.
    index = "create index {} pgqueue_queue_note_ix on pgqueue_queue (note);"
    project.edit("pgqueue_queue", ");\n", ");\n" + index.format("") + "\n")
    with pytest.raises(AssertionError, match="indexes"):
        project.upgrade(conninfo, "0.1.0")
    afterwards = f"    afterwards = ({index.format('concurrently if not exists')!r},)\n\n    operations"
    made.write_text(made.read_text().replace("    operations", afterwards))
    project.upgrade(conninfo, "0.1.0")


def test_releases_follow_each_other(project: Project, conninfo: str) -> None:
    ship("0.1.0", project.migrations)
    project.change(FAIL)
    project.reword(FAIL, "Once.")
    ship("0.2.0", project.migrations)
    project.forget()
    project.change("pgqueue_now")
    project.reword("pgqueue_now", "Once.")
    ship("0.10.0", project.migrations)
    project.change(FAIL)
    project.reword(FAIL, "Twice.")
    assert sorted(path.name for path in project.migrations.glob("0*.py")) == [
        "0001_initial.py",
        "0002_after_0_1_0.py",
        "0003_after_0_2_0.py",
        "0004_after_0_10_0.py",
    ]
    assert project.unfinished() == []
    project.upgrade(conninfo, "0.1.0", "0.2.0")  # from 0.10.0 it is one step, as above


@pytest.mark.skipif(shutil.which("git") is None, reason="there is no git")
def test_after_the_change_the_shipped_text_comes_from_git(project: Project) -> None:
    git = ["git", "-C", str(project.root), "-c", "user.name=Ada", "-c", "user.email=ada@example.com"]
    subprocess.run([*git, "init", "--quiet"], check=True)
    subprocess.run([*git, "add", "."], check=True)
    subprocess.run([*git, "commit", "--quiet", "-m", "Released"], check=True)
    shipped = sql_files.current(FAIL)
    ship("0.1.0", project.migrations)
    project.reword(FAIL, "Once.")
    project.change(FAIL)
    assert (project.sql / "released" / "0.1.0" / f"{FAIL}.sql").read_text() == shipped
    assert project.unfinished() == []


def test_a_missing_shipped_text_is_requested(project: Project) -> None:
    ship("0.1.0", project.migrations)
    project.reword(FAIL, "Once.")
    with pytest.raises(SystemExit, match=r"Write it to .*/released/0\.1\.0/pgqueue_message_fail\.sql"):
        project.change(FAIL)


def test_the_script_refuses_an_unknown_function_name(project: Project) -> None:
    ship("0.1.0", project.migrations)
    with pytest.raises(SystemExit, match=r"pgqueue_message_fall\.sql is no part of a queue"):
        project.change("pgqueue_message_fall")


def test_a_release_that_is_not_listed_is_refused(project: Project) -> None:
    with pytest.raises(ValueError, match=r"sql/released/0\.1\.0\.txt does not exist"):
        ReplaceFunction(FAIL, since="0.1.0")


def move_tables(session: Session, schema: str) -> None:
    session.rows(f"create schema {schema}")
    tables = "select oid::regclass from pg_class where relname ~ '^pgqueue' and relkind in ('r', 'p')"
    for table in session.column(tables):
        session.rows(f"alter table {table} set schema {schema}")


@pytest.mark.parametrize("is_first", [True, False], ids=["tables first", "functions first"])
def test_tables_that_were_moved_without_their_functions_are_repaired(conninfo: str, is_first: bool) -> None:
    path = "shop,public" if is_first else "public,shop"
    with queue_of(conninfo) as (database, session):
        session.rows("select pgqueue_message_create('\"kept\"')")
        whole = described(session)
        move_tables(session, "shop")
        session.rows(f"set search_path = {path}")
        with pytest.raises(OutdatedQueue, match=r"in the schema shop, and its functions in public\..*sql/repin\.sql"):
            require_queue(session.connection, "default")
        for name in ("install", "upgrade") if is_first else ("install",):
            done = psql(database, "-f", str(sql_files.folder() / f"{name}.sql"), search_path=path)
            assert done.returncode != 0
            assert "psql -f sql/repin.sql" in done.stderr
            assert "uninstall" not in done.stderr
        run_file(database, "repin", search_path=path)
        session.rows("set search_path = shop")
        require_queue(session.connection, "default")
        assert strayed(session.connection) is None
        assert described(session, "shop") == whole
        assert [one.content for one in session.dequeue()] == ["kept"]


def functions_in(session: Session, schema: str) -> list[str]:
    query = "select oid::regprocedure::text from pg_proc where pronamespace = %s::regnamespace and proname ~ '^pgqueue'"
    return sorted(session.column(query, [schema]))


LOOKALIKE = "create function {}.pgqueue_{}() returns bigint language sql as 'select 0'"


@pytest.fixture
def guest(conninfo: str) -> Iterator[str]:
    """A role that is no superuser."""
    with psycopg.connect(conninfo, autocommit=True) as connection:
        connection.execute("create role pgqueue_test_guest nologin")
        try:
            yield "pgqueue_test_guest"
        finally:
            connection.execute("drop role pgqueue_test_guest")


def test_a_repair_moves_no_function_of_others(conninfo: str, guest: str) -> None:
    """Functions that run with the rights of their owner would call it."""
    with queue_of(conninfo) as (database, session):
        whole = functions_in(session, "public")
        session.rows(f"create schema attic authorization {guest}; create schema reporting")
        session.rows(LOOKALIKE.format("reporting", "figures"))
        move_tables(session, "shop")
        for where, name in [("attic", "clock"), ("attic", "message_create"), ("public", "clock")]:
            session.rows(LOOKALIKE.format(where, name))
            session.rows(f"alter function {where}.pgqueue_{name}() owner to {guest}")
        # The same signature in two schemas.
        session.rows(
            "create function attic.pgqueue_clock(timestamptz) returns bigint language sql as 'select 0'; "
            f"alter function attic.pgqueue_clock(timestamptz) owner to {guest}"
        )
        # One was moved by hand.
        session.rows("alter function pgqueue_version() set schema shop")

        run_file(database, "repin", search_path="shop")
        session.rows("set search_path = shop")
        assert functions_in(session, "shop") == whole
        assert functions_in(session, "public") == ["public.pgqueue_clock()"]
        assert len(functions_in(session, "attic")) == 3
        assert functions_in(session, "reporting") == ["reporting.pgqueue_figures()"]


def test_a_repair_that_cannot_know_the_functions_is_an_error_with_the_next_step(conninfo: str, guest: str) -> None:
    with queue_of(conninfo) as (database, session):
        whole = functions_in(session, "public")
        session.rows("create schema attic")
        session.rows(LOOKALIKE.format("attic", "message_create"))
        move_tables(session, "shop")
        repin = ("-v", "ON_ERROR_STOP=1", "-f", str(sql_files.folder() / "repin.sql"))
        several = psql(database, *repin, search_path="shop")
        assert several.returncode != 0
        assert "several schemas have functions without tables: attic, public" in several.stderr
        assert "rename the function pgqueue_message_create" in several.stderr

        session.rows(f"alter function attic.pgqueue_message_create() owner to {guest}")
        session.rows("alter function pgqueue_message_create rename to put_away")
        none = psql(database, *repin, search_path="shop")
        assert none.returncode != 0
        assert "no other schema has them of its owner" in none.stderr
        assert "alter function ... owner to" in none.stderr
        assert functions_in(session, "shop") == []

        session.rows("alter function put_away rename to pgqueue_message_create")
        run_file(database, "repin", search_path="shop")
        session.rows("set search_path = shop")
        assert functions_in(session, "shop") == whole


def test_uninstall_leaves_the_queue_of_the_next_schema(conninfo: str) -> None:
    with queue_of(conninfo, "0.1.0") as (database, session):
        whole = described(session)
        session.rows("create schema shop")
        run_file(database, "install", search_path="shop,public")
        run_file(database, "uninstall", search_path="shop,public")
        assert described(session) == whole
        assert session.one("select count(*) from pg_class where relnamespace = 'shop'::regnamespace") == 0

        again = psql(database, "-f", str(sql_files.folder() / "uninstall.sql"), search_path="shop,public")
        assert "WARNING:  there is no queue in the schema shop: nothing was removed" in again.stderr
        assert "The search_path finds one in public." in again.stderr
        assert described(session) == whole
