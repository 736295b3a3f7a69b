"""The queue without Django: ``psql -f sql/install.sql`` makes what the migrations make."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING

import psycopg
import pytest

from django_pgqueue import functions
from django_pgqueue.functions import sql_files as schema
from django_pgqueue.functions.installed import needed
from tests.support.databases import described, empty_database, install, migrate, psql, session_in
from tests.support.sessions import token

if TYPE_CHECKING:
    from collections.abc import Iterator

INSTALL, UNINSTALL, UPGRADE, REPIN = (
    str(schema.folder() / f"{name}.sql") for name in ("install", "uninstall", "upgrade", "repin")
)


@pytest.fixture
def empty(conninfo: str) -> Iterator[str]:
    with empty_database(conninfo, "empty") as found:
        yield found


@pytest.fixture
def migrated(conninfo: str) -> Iterator[str]:
    with empty_database(conninfo, "migrated") as found:
        migrate(found)
        yield found


def test_install_makes_the_schema_of_the_migrations(empty: str, migrated: str) -> None:
    done = psql(empty, "-f", INSTALL)
    assert (done.returncode, done.stderr) == (0, "")
    with session_in(empty) as installed, session_in(migrated) as by_django:
        by_psql = described(installed)
        assert by_psql == described(by_django)
        assert {kind: len(found) > 1 for kind, found in by_psql.items()} == dict.fromkeys(by_psql, True)


@pytest.fixture
def two_schemas(empty: str) -> str:
    """A database with the queues first_queue and second_queue."""
    for name in ("first_queue", "second_queue"):
        with session_in(empty) as session:
            session.rows(f"create schema {name}")
        assert psql(empty, "-f", INSTALL, search_path=name).returncode == 0
    return empty


def test_the_queue_works_in_a_schema_of_its_own_beside_another_one(two_schemas: str) -> None:
    with session_in(two_schemas, search_path="first_queue") as session:
        assert described(session, "first_queue") == described(session, "second_queue")
        session.rows("select second_queue.pgqueue_message_create('\"of the second\"')")
        session.create("of the first")
        held = session.take()
        assert held.content == "of the first"
        assert session.dequeue() == []
        assert session.value("second_queue.pgqueue_message_complete", **token(held)) is False
        assert session.value("pgqueue_message_complete", **token(held)) is True
        assert [row.content for row in session.rows("select content from second_queue.pgqueue_message")] == [
            "of the second"
        ]


def test_with_two_queues_in_the_search_path_the_first_is_used(empty: str) -> None:
    with session_in(empty) as session:
        session.rows("create schema shop")
    assert psql(empty, "-f", INSTALL).returncode == 0
    assert psql(empty, "-f", INSTALL, search_path="shop, public").returncode == 0
    days = (
        "select c.relname from pg_inherits i join pg_class c on c.oid = i.inhrelid "
        "where i.inhparent = '{}.pgqueue_attempt'::regclass order by 1"
    )
    with session_in(empty, search_path="shop, public") as session:
        of_shop = session.column(days.format("shop"))
        assert of_shop == session.column(days.format("public")) != ["pgqueue_attempt_default"]
        yesterday = session.one("select pgqueue_clock()::date - 1")
        assert session.one("select public.pgqueue_attempt_partition(%s)", [yesterday]) is True
        of_public = session.column(days.format("public"))
        print_of_nothing = session.one("select pgqueue_attempt_fingerprint(%s)", [yesterday])
        assert session.one("select pgqueue_attempt_drop(%s, %s)", [yesterday, print_of_nothing]) is False
        assert session.column(days.format("public")) == of_public, "the history of another queue is not touched"
        assert session.one("select pgqueue_attempt_partition(%s)", [yesterday]) is True
        assert session.one("select pgqueue_attempt_drop(%s, %s)", [yesterday, print_of_nothing]) is True
        assert session.column(days.format("public")) == of_public


def test_install_is_all_or_nothing(empty: str) -> None:
    with session_in(empty) as session:
        session.rows("create view pgqueue_ended as select 'in the way'")
        done = psql(empty, "-f", INSTALL)
        assert done.returncode != 0
        assert 'relation "pgqueue_ended" already exists' in done.stderr
        assert session.column("select relname from pg_class where relname like 'pgqueue%%'", {}) == ["pgqueue_ended"]


def test_an_install_over_remaining_functions_is_an_error_with_the_next_step(empty: str) -> None:
    """With other parameters they would stay beside those of today, and calls would be ambiguous."""
    with session_in(empty) as session:
        install(session, "0.1.0")
        for table in session.column("select relname::text from pg_class where relname ~ '^pgqueue' and relkind = 'r'"):
            session.rows(f"drop table if exists {table} cascade")
        session.rows("drop table pgqueue_attempt")
        before = described(session)
        done = psql(empty, "-f", INSTALL)
        assert done.returncode != 0
        assert "the schema public lacks pgqueue_message, and has " in done.stderr
        assert "other parts of a queue: pgqueue_advisory_lock(text,boolean,integer), " in done.stderr
        assert "psql -f sql/uninstall.sql" in done.stderr
        assert described(session) == before


def test_a_second_install_reports_the_queue_and_changes_nothing(migrated: str) -> None:
    with session_in(migrated) as session:
        session.create()
        before = described(session), session.messages()
        for _ in range(2):
            done = psql(migrated, "-f", INSTALL)
            assert (done.returncode, done.stderr) == (0, "")
            assert done.stdout == f"The queue in the schema public is that of {needed()}. Nothing was done.\n"
            assert (described(session), session.messages()) == before


def test_an_install_over_remaining_tables_is_an_error_with_the_next_step(migrated: str) -> None:
    with session_in(migrated) as session:
        session.rows("drop table pgqueue_message cascade")
        before = described(session)
        done = psql(migrated, "-f", INSTALL)
        assert done.returncode != 0
        assert "the schema public lacks pgqueue_message, and has " in done.stderr
        assert "psql -f sql/uninstall.sql" in done.stderr
        assert described(session) == before


def test_uninstall_takes_everything_out_and_may_be_repeated(migrated: str) -> None:
    for _ in range(2):
        done = psql(migrated, "-v", "ON_ERROR_STOP=1", "-f", UNINSTALL)
        assert (done.returncode, done.stderr) == (0, "")
        with session_in(migrated) as session:
            assert {kind: found for kind, found in described(session).items() if found} == {}


@pytest.mark.parametrize("release", schema.releases())
def test_uninstall_takes_out_the_queue_of_every_release(empty: str, release: str) -> None:
    with session_in(empty) as session:
        install(session, release)
        done = psql(empty, "-v", "ON_ERROR_STOP=1", "-f", UNINSTALL)
        assert (done.returncode, done.stderr) == (0, "")
        assert {kind: found for kind, found in described(session).items() if found} == {}
        assert psql(empty, "-f", INSTALL).returncode == 0
        session.rows("select pgqueue_message_create('{}')")
        assert len(session.messages()) == 1


def test_install_has_every_file_of_a_folder_and_no_other() -> None:
    of_folders = [f"{path.parent.name}/{path.name}" for path in schema.folder().glob("*/*.sql")]
    installed = re.findall(r"^\\ir (.*)$", schema.current("install"), re.MULTILINE)
    assert sorted(installed) == sorted(of_folders)
    assert schema.install_order() == [Path(file).stem for file in installed]


def test_a_name_is_that_of_one_file() -> None:
    """sql_files finds a text by its name in whichever folder it stands."""
    names = [path.stem for path in (*schema.folder().glob("*.sql"), *schema.folder().glob("*/*.sql"))]
    assert sorted(names) == sorted(set(names))


def test_a_file_at_the_top_is_run_by_hand() -> None:
    top = {path.stem for path in schema.folder().glob("*.sql")}
    assert top == {"install", "uninstall", "roles", "roles_drop", "movable_clock", "repin", "upgrade"}


def test_after_a_schema_rename_the_functions_are_pinned_again(empty: str) -> None:
    with session_in(empty) as session:
        session.rows("create schema shop")
    assert psql(empty, "-f", INSTALL, search_path="shop").returncode == 0
    with session_in(empty, search_path='"Shop"') as session:
        session.rows("set search_path = shop")
        assert functions.strayed(session.connection) is None
        session.rows('alter schema shop rename to "Shop"')
        session.rows('set search_path = "Shop"')
        assert "search shop. These functions find no tables." in str(functions.strayed(session.connection))
        with pytest.raises((psycopg.errors.UndefinedTable, psycopg.errors.UndefinedFunction)):
            session.create("nowhere")

        # Worse: another queue has the old name now, and gets what was meant for this one.
        session.rows("create schema shop")
        assert psql(empty, "-f", INSTALL, search_path="shop").returncode == 0
        session.create("elsewhere")
        assert session.one("select content from shop.pgqueue_message") == "elsewhere"
        assert "These functions use the tables of the queue in shop." in str(functions.strayed(session.connection))

        for _ in range(2):
            done = psql(empty, "-v", "ON_ERROR_STOP=1", "-f", REPIN, search_path='"Shop"')
            assert (done.returncode, done.stderr) == (0, "")
            assert functions.strayed(session.connection) is None
        session.create("here")
        assert session.take().content == "here"
        assert session.one("select count(*) from shop.pgqueue_message") == 1
        session.rows("set search_path = shop")
        assert functions.strayed(session.connection) is None


@pytest.mark.parametrize("way", ["psql", "migrations", "upgrade"])
def test_logins_use_a_queue_in_the_schema_that_is_named_like_its_owner(empty: str, way: str) -> None:
    """Its search_path finds that by "$user", which is another schema for each of them."""
    with session_in(empty) as session:
        owner = session.one("select current_user::text")
        session.rows(f'create schema "{owner}"')
        path = f'"{owner}", public'
        session.rows("create role pgqueue_test_guest nologin")
    try:
        if way == "psql":
            assert psql(empty, "-f", INSTALL).returncode == 0
        elif way == "migrations":
            migrate(empty)
        else:
            with session_in(empty) as session:
                install(session, "0.1.0")
            assert psql(empty, "-f", UPGRADE).returncode == 0
        with session_in(empty, search_path=path) as session:
            session.rows(f'grant usage on schema "{owner}" to pgqueue_test_guest')
            session.rows("set role pgqueue_test_guest")
            assert functions.strayed(session.connection) is None
    finally:
        with session_in(empty) as session:
            session.rows("drop owned by pgqueue_test_guest; drop role pgqueue_test_guest")


def test_queues_of_two_schemas_never_wait_for_each_other(two_schemas: str) -> None:
    with (
        session_in(two_schemas, search_path="first_queue") as first,
        session_in(two_schemas, search_path="second_queue") as second,
    ):
        first.connection.autocommit = False
        first.call("pgqueue_channel_set", name="acme", max_concurrency=1)
        first.call("pgqueue_message_lock_keys", task="a.b", alone=True)
        first.call("pgqueue_attempt_maintain")
        first.call("pgqueue_message_await_turn")
        first.rows("lock table pgqueue_binding in share row exclusive mode")
        numbers = "select classid, objid from pg_locks where locktype = 'advisory' and pid = %s"
        assert len(first.rows(numbers, [first.pid])) == 3

        second.connection.autocommit = False
        second.rows("set local lock_timeout = '1ms'")
        second.call("pgqueue_channel_set", name="acme", max_concurrency=1)
        second.call("pgqueue_message_lock_keys", task="a.b", alone=True)
        second.create("tea", channel="acme")
        assert second.take().content == "tea"
        assert second.value("pgqueue_message_await_turn", wait_ms=0) == 0
        second.rows("drop table pgqueue_attempt_" + second.one("select to_char(now() at time zone 'UTC', 'YYYYMMDD')"))
        assert second.value("pgqueue_attempt_maintain") == 1
        assert len(second.rows(numbers, [second.pid])) == 3
        first.rollback()
        second.rollback()
