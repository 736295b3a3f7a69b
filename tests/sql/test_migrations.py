"""The migrations load sql/, and can be taken back."""

from __future__ import annotations

from io import StringIO
from typing import TYPE_CHECKING

import pytest
from django.core.management import call_command
from django.db import connection, models

from django_pgqueue.functions import sql_files as schema
from django_pgqueue.models import Attempt, Binding, Exchange, Message, Worker
from tests.support.databases import described, empty_database, migrate, session_in, sql_files

if TYPE_CHECKING:
    from pathlib import Path

    from tests.support.sessions import Session


def test_back_to_zero_leaves_nothing_behind_and_forward_again_gives_the_same(conninfo: str) -> None:
    with empty_database(conninfo, "there_and_back") as database, session_in(database) as session:
        migrate(database)
        first = described(session)
        session.create()
        session.take()

        migrate(database, back=True)
        assert {kind: found for kind, found in described(session).items() if found} == {}
        assert session.column("select typname from pg_type where typname like '%pgqueue%'") == []

        migrate(database)
        assert described(session) == first
        assert session.messages() == []


def test_a_publication_for_all_tables_may_be_there_before_the_queue(conninfo: str) -> None:
    """PostgreSQL then refuses to delete from tables without an identity."""
    with empty_database(conninfo, "followed") as database, session_in(database) as session:
        session.rows("create publication everything for all tables")
        migrate(database)
        assert session.one("select count(*) from pg_inherits where inhparent = 'pgqueue_attempt'::regclass") > 1
        migrate(database, back=True)
        assert session.column("select relname from pg_class where relname like 'pgqueue%'") == []


def test_running_the_function_files_again_changes_nothing(session: Session) -> None:
    definitions = """
        select p.oid, pg_get_functiondef(p.oid) from pg_proc p
        where p.proname like 'pgqueue%' and p.pronamespace = 'public'::regnamespace order by 1
    """
    for name in ("pgqueue_clock", "pgqueue_now"):  # that of the tests can be moved
        session.rows(sql_files()[name])
    before = session.rows(definitions)
    session.rows("set search_path = public")  # as the migrations do, without "$user"
    for name in schema.install_order():
        if "create table" not in sql_files()[name]:
            session.rows(sql_files()[name])
    assert session.rows(definitions) == before
    assert len(before) >= 25


def test_there_is_nothing_left_for_makemigrations(db: None) -> None:
    out = StringIO()
    try:
        call_command("makemigrations", "django_pgqueue", check=True, dry_run=True, stdout=out)
    except SystemExit:
        pytest.fail(f"the models have changes that no migration has:\n{out.getvalue()}")


@pytest.mark.parametrize("model", [Message, Attempt, Worker, Exchange, Binding])
def test_the_models_have_the_columns_of_the_tables(session: Session, model: type[models.Model]) -> None:
    columns = session.rows(
        """
        select i.column_name as name, format_type(a.atttypid, a.atttypmod) as type, i.is_nullable = 'YES' as nullable
        from information_schema.columns i
        join pg_attribute a on a.attrelid = i.table_name::regclass and a.attname = i.column_name
        where i.table_schema = 'public' and i.table_name = %s and i.is_generated = 'NEVER'
        order by i.ordinal_position
        """,
        [model._meta.db_table],
    )
    fields = [(field.column, field.db_type(connection), field.null) for field in model._meta.local_concrete_fields]
    assert [tuple(column) for column in columns] == fields


def test_rows_that_django_writes_have_the_defaults_of_the_table(db: None) -> None:
    message = Message.objects.create(dequeue_at=0, content={"n": 1})
    message.refresh_from_db()
    assert (message.queue, message.priority, message.attempt, message.worker) == ("default", 0, 0, None)
    assert message.created_at is not None


def test_a_release_has_the_text_that_was_kept_when_it_changed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(schema, "folder", lambda: tmp_path)
    (tmp_path / "clock").mkdir()
    (tmp_path / "clock" / "pgqueue_now.sql").write_text("in force today")
    for version in ("0.2.0", "0.9.0", "0.10.0"):
        (tmp_path / "released" / version).mkdir(parents=True)
        (tmp_path / "released" / f"{version}.txt").write_text("migration 0001_initial\n")
    assert schema.releases() == ["0.2.0", "0.9.0", "0.10.0"]
    assert [schema.release_after(version) for version in schema.releases()] == ["0.9.0", "0.10.0", None]
    assert schema.load("pgqueue_now", release="0.2.0") == schema.load("pgqueue_now") == "in force today"

    (tmp_path / "released" / "0.9.0" / "pgqueue_now.sql").write_text("until 0.9.0")
    assert [schema.load("pgqueue_now", release=version) for version in schema.releases()] == [
        "until 0.9.0",
        "until 0.9.0",
        "in force today",
    ]
    assert schema.load("pgqueue_now") == "in force today"


def test_a_missing_text_is_an_error_that_names_it() -> None:
    with pytest.raises(FileNotFoundError, match=r"pgqueue_nothing\.sql"):
        schema.load("pgqueue_nothing", release="0.1.0")
