"""The queue without Django: ``psql -f sql/install.sql`` makes what the migrations make."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from django.db import migrations

from django_pgqueue import schema
from django_pgqueue.migrations import __name__ as migrations_package
from tests.installing import install_order
from tests.sql.databases import described, empty_database, migrate, psql, session_in, sql_files
from tests.sql.sessions import token

if TYPE_CHECKING:
    from collections.abc import Iterator

INSTALL, UNINSTALL = (str(schema.folder() / name) for name in ("install.sql", "uninstall.sql"))


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


def test_the_queue_works_in_a_schema_of_its_own_beside_another_one(empty: str) -> None:
    with session_in(empty) as session:
        session.rows("create schema first_queue")
        session.rows("create schema second_queue")
    for name in ("first_queue", "second_queue"):
        assert psql(empty, "-f", INSTALL, search_path=name).returncode == 0

    with session_in(empty, search_path="first_queue") as session:
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


def test_install_is_all_or_nothing(empty: str) -> None:
    with session_in(empty) as session:
        session.rows("create function pgqueue_attempt_enqueue(p_attempt_ids bigint[]) returns text return 'in the way'")
        done = psql(empty, "-f", INSTALL)
        assert done.returncode != 0
        assert "pgqueue_attempt_enqueue" in done.stderr or "cannot change return type" in done.stderr
        assert session.column("select relname from pg_class where relname like 'pgqueue%%'", {}) == []


def test_a_second_install_says_that_there_is_one_and_changes_nothing(migrated: str) -> None:
    with session_in(migrated) as session:
        session.create()
        before = described(session), session.messages()
        done = psql(migrated, "-f", INSTALL)
        assert done.returncode != 0
        assert "already exists" in done.stderr
        assert (described(session), session.messages()) == before


def test_uninstall_takes_everything_out_and_may_be_repeated(migrated: str) -> None:
    for _ in range(2):
        done = psql(migrated, "-v", "ON_ERROR_STOP=1", "-f", UNINSTALL)
        assert done.returncode == 0, done.stderr
        with session_in(migrated) as session:
            assert {kind: found for kind, found in described(session).items() if found} == {}


def test_every_file_is_installed_in_the_order_of_the_migration() -> None:
    migration = __import__(f"{migrations_package}.0001_initial", fromlist=["Migration"]).Migration
    texts = {text: name for name, text in sql_files().items()}
    by_django = [
        texts[operation.sql]
        for operation in migration.operations
        if isinstance(operation, migrations.RunSQL) and operation.sql in texts
    ]
    assert by_django == install_order()
    assert sorted(install_order()) == sorted(
        set(sql_files()) - {"install", "uninstall", "roles", "roles_drop", "movable_clock"}
    )
