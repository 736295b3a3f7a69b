"""``qdoctor --setup``: the steps to the first job, up to the first that is missing."""

from __future__ import annotations

import io
from typing import TYPE_CHECKING, Any

import psycopg
import pytest
from django.core.management import call_command
from django.db import connections, transaction
from django.test import override_settings

from django_pgqueue.monitoring import setup
from django_pgqueue.tasks import registry
from tests.support.address import conninfo
from tests.support.fixtures.admin import sign_in

if TYPE_CHECKING:
    from pytest_django.fixtures import Settings

OURS = "django_pgqueue.backend.PgQueueBackend"
pytestmark = pytest.mark.django_db


def said() -> list[str]:
    out, code = io.StringIO(), None
    try:
        call_command("qdoctor", "--setup", stdout=out)
    except SystemExit as error:
        code = error.code
    return [*out.getvalue().splitlines(), *([] if code is None else [f"exit {code}"])]


def test_each_step_says_what_is_there() -> None:
    sign_in()
    lines = said()
    assert [line.split(":")[0] for line in lines[:-1]] == [f"done    {title}" for title, _ in setup.STEPS]
    assert "default in the database 'default'" in lines[0]
    assert "is PostgreSQL" in lines[1]
    assert "the queue of " in lines[2]
    assert lines[4] == "done    A worker runs: 1 in 'default'"
    assert lines[5].startswith("Enqueue a task: it runs at once.")


def test_without_a_worker_the_walk_ends_with_the_command_that_starts_one() -> None:
    assert said()[-3:] == [
        "missing A worker runs: none is alive in 'default'",
        "        Run manage.py qworker in another terminal.",
        "exit 1",
    ]


def test_a_login_that_may_not_look_for_workers_is_told_which_may() -> None:
    with connections["default"].cursor() as cursor:
        cursor.execute("set local role pg_read_all_stats")
    assert said()[-3:] == [
        "missing A worker runs: it is unknown in 'default': permission denied for table pgqueue_worker",
        "        Run this with a login that has the role pgqueue_reader of sql/roles.sql.",
        "exit 1",
    ]


def test_a_backend_of_another_package_is_named(settings: Settings) -> None:
    settings.TASKS = {"mail": {"BACKEND": "django_pgqueue.stand_ins.DummyBackend"}}
    assert said()[0] == "missing TASKS names the backend: no alias of TASKS (mail) uses it"


@pytest.mark.parametrize(
    ("database", "words"),
    [("nowhere", "DATABASES has no 'nowhere'"), ("sqlite", "'sqlite' is sqlite")],
)
def test_a_database_that_is_no_postgresql_is_named(database: str, words: str, monkeypatch: pytest.MonkeyPatch) -> None:

    monkeypatch.setitem(connections.settings, "sqlite", {**connections.settings["default"], "ENGINE": SQLITE})
    with override_settings(TASKS={"default": {"BACKEND": OURS, "OPTIONS": {"DATABASE": database}}}):
        assert said()[1] == f"missing Its database is PostgreSQL: {words}"


SQLITE = "django.db.backends.sqlite3"


def test_a_database_whose_times_django_cannot_read_is_named() -> None:
    with connections["default"].cursor() as cursor:
        cursor.execute("set local datestyle = 'German'")
    assert said()[1] == "missing Its database is PostgreSQL: DateStyle is German, DMY in 'default'"


def test_a_module_that_cannot_be_imported_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    def fails() -> Any:
        message = "no module 'requets'\n\tIs it installed?"
        raise ModuleNotFoundError(message)

    monkeypatch.setattr(registry, "autodiscover", fails)
    assert said()[3] == (
        "missing Tasks are declared: a module cannot be imported: ModuleNotFoundError: no module 'requets' "
        "Is it installed?"
    )


def test_a_project_without_tasks_is_told_where_to_write_them(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(setup, "declared", list)
    assert said()[3] == "missing Tasks are declared: no module 'tasks' of an installed app declares one"


def test_a_login_that_may_not_use_the_schema_is_not_sent_to_migrate() -> None:
    with connections["default"].cursor() as cursor:
        cursor.execute("create role pgqueue_test_guest")
        cursor.execute("revoke usage on schema public from public")
        cursor.execute("set local role pgqueue_test_guest")
    step, remedy, code = said()[-3:]
    assert step.startswith("missing The tables are there: the user pgqueue_test_guest may not use the schema public of")
    assert remedy.strip() == (
        "Grant usage on it, with a role of sql/roles.sql: see manage.py qdoctor. If it is the queue of others, run "
        "manage.py migrate --database default"
    )
    assert code == "exit 1"


@pytest.mark.django_db(transaction=True)
def test_a_time_limit_is_the_end_of_the_walk_and_no_crash() -> None:
    with (
        psycopg.connect(conninfo()) as other,
        transaction.atomic(),
        connections["default"].cursor() as cursor,
    ):
        other.execute("lock table pgqueue_worker")
        cursor.execute("set local lock_timeout = 1")
        title, remedy, code = said()[-3:]
        assert title.startswith("missing A worker runs: canceling statement due to lock timeout")
        assert remedy.strip() == "Try again; manage.py qdoctor shows locks and other causes."
        assert code == "exit 1"
        transaction.set_rollback(True)
