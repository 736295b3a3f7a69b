"""Migrations make tables where the queue is and nowhere else, and system checks say what is wrong."""

from __future__ import annotations

import re
import sys
from typing import TYPE_CHECKING, Any

import pytest
from django.apps import apps
from django.core import checks
from django.core.management import call_command
from django.core.management.base import SystemCheckError
from django.db import connections
from django.db.migrations.recorder import MigrationRecorder

from django_pgqueue import functions
from django_pgqueue.checks import check_atomic, check_records, check_routing, check_sharing, check_tables, check_version
from django_pgqueue.functions import sql_files
from django_pgqueue.tasks import registry, task
from tests.promises.databases.conftest import BACKEND
from tests.support.tasks import do_nothing

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pytest_django.fixtures import Settings

pytestmark = pytest.mark.django_db(databases=["default", "jobs", "empty"], transaction=True)


def tables(database: str) -> list[str]:
    return [name for name in connections[database].introspection.table_names() if name.startswith("pgqueue_")]


def migrate(database: str, *to: str, skip_checks: bool = True) -> None:
    call_command("migrate", "django_pgqueue", *to, database=database, verbosity=0, skip_checks=skip_checks)


def in_database(database: str, **more: Any) -> dict[str, Any]:
    return {"default": {"BACKEND": BACKEND, "QUEUES": [], "OPTIONS": {"DATABASE": database, **more}}}


def ids(found: list[checks.CheckMessage]) -> list[str | None]:
    return [message.id for message in found]


def test_migrations_create_nothing_in_a_database_without_a_queue(empty: str) -> None:
    migrate(empty)
    assert tables(empty) == []
    migrate(empty, "zero")


@pytest.fixture(scope="module")
def lite() -> Iterator[str]:
    """The alias of an empty database of another kind."""
    sqlite = {"ENGINE": "django.db.backends.sqlite3", "NAME": ":memory:", "OPTIONS": {}}
    connections.settings["lite"] = {**connections.settings["default"], **sqlite}
    yield "lite"
    if (opened := connections["lite"].connection) is not None:  # whatever has closed it before
        opened.close()  # Django's close() leaves a database in memory open
    del connections["lite"], connections.settings["lite"]


@pytest.mark.django_db(databases=["default", "lite"], transaction=True)
def test_migrations_without_the_router_pass_a_database_of_another_kind(lite: str, settings: Settings) -> None:
    settings.DATABASE_ROUTERS = []
    migrate(lite)
    assert tables(lite) == []
    # Django reads the tables of these models before tests with serialized_rollback.
    assert not [one for one in apps.get_app_config("django_pgqueue").get_models() if one._meta.can_migrate(lite)]
    migrate(lite, "zero")


@pytest.mark.parametrize("test", [{}, {"MIRROR": "empty"}], ids=["the same name", "a mirror"])
def test_migrations_of_another_alias_of_its_database_make_the_tables(
    empty: str, settings: Settings, monkeypatch: pytest.MonkeyPatch, test: dict[str, str]
) -> None:
    """Such as one that goes around a pooler: Django records the migrations of both in the same table."""
    known = connections[empty].settings_dict
    port = {"PORT": "6432"} if test else {}
    monkeypatch.setitem(connections.settings, "direct", {**known, **port, "TEST": {**known["TEST"], **test}})
    settings.TASKS = in_database("direct")
    migrate(empty)
    assert "pgqueue_message" in tables(empty)
    migrate(empty, "zero")


def test_without_any_queue_the_router_has_no_opinion(empty: str, settings: Settings) -> None:
    settings.TASKS = {"default": {"BACKEND": "django_pgqueue.stand_ins.DummyBackend"}}
    migrate(empty)
    assert "pgqueue_message" in tables(empty)


def test_missing_tables_are_a_warning_if_the_check_may_query(empty: str, settings: Settings) -> None:
    settings.TASKS = in_database(empty)
    [found] = check_tables([empty, "default", "jobs"])
    assert found == checks.Warning(
        "The database 'empty' has no tables of the queue yet.",
        hint="Run manage.py migrate --database empty.",
        id="pgqueue.W003",
    )
    assert check_tables(None) == check_tables(["default"]) == []
    assert "pgqueue.W003" not in ids(checks.run_checks())
    assert "pgqueue.W003" in ids(checks.run_checks(databases=[empty]))
    migrate(empty, skip_checks=False)
    assert check_tables([empty]) == []


def test_a_migrate_does_not_warn_of_what_it_is_about_to_do(
    empty: str, settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings.TASKS = in_database(empty)
    monkeypatch.setattr(sys, "argv", ["manage.py", "migrate"])
    assert check_tables([empty]) == []
    migrate(empty, sql_files.last_migration(sql_files.FIRST))
    assert check_version([empty]) == []
    monkeypatch.setattr(sys, "argv", ["manage.py", "check"])
    assert ids(check_version([empty])) == ["pgqueue.W005"]


def test_a_queue_of_an_earlier_release_is_reported(empty: str, settings: Settings) -> None:
    settings.TASKS = in_database(empty)
    assert check_version([empty]) == [], "there is none"
    migrate(empty)
    assert check_version([empty]) == []
    migrate(empty, sql_files.last_migration(sql_files.FIRST))
    [found] = check_version([empty])
    needed = functions.needed()
    assert found == checks.Warning(
        f"The database 'empty' has the queue of {sql_files.FIRST}, and this code needs that of {needed}: workers do "
        "not start.",
        hint="Run manage.py migrate django_pgqueue --database empty or, without Django, psql -f sql/upgrade.sql",
        id="pgqueue.W005",
    )
    assert check_version(None) == check_version(["default"]) == []
    migrate(empty, skip_checks=False)
    assert check_version([empty]) == []


def run(database: str, statement: str) -> None:
    with connections[database].cursor() as cursor:
        cursor.execute(statement)


@pytest.mark.slow
def test_recorded_migrations_without_tables_are_an_error_with_a_working_remedy(empty: str, settings: Settings) -> None:
    settings.TASKS = in_database(empty)
    assert check_records(None) == check_records(["default"]) == []
    migrate(empty)
    assert check_records([empty]) == []
    run(empty, sql_files.current("uninstall"))
    [found] = check_records([empty])
    assert found.id == "pgqueue.E011"
    assert "The database 'empty' has no tables of the queue, but its django_migrations lists" in found.msg
    assert check_tables([empty]) == [], "its advice would be to migrate, which makes no tables"
    with pytest.raises(SystemCheckError, match="E011"):
        migrate(empty, skip_checks=False)
    commands = re.findall(r"manage\.py (migrate[^,.]*)", found.hint or "")
    for command in commands:
        call_command(*command.split(), verbosity=0)
    assert len(commands) == 2
    assert check_records([empty]) == check_tables([empty]) == []
    assert "pgqueue_message" in tables(empty)
    migrate(empty, "zero")
    assert tables(empty) == []


def test_tables_that_are_recorded_under_the_former_label_are_an_error_with_its_remedy(
    empty: str, settings: Settings
) -> None:
    settings.TASKS = in_database(empty)
    migrate(empty)
    run(empty, "update django_migrations set app = 'pgqueue' where app = 'django_pgqueue'")
    [found] = check_records([empty])
    assert found.id == "pgqueue.E011"
    assert "under the former label 'pgqueue'" in found.msg
    [statement] = re.findall(r"update django_migrations [^;]+", found.hint or "")
    run(empty, statement)
    assert check_records([empty]) == []


def test_records_of_another_package_do_not_stop_migrate_from_creating_tables(empty: str, settings: Settings) -> None:
    settings.TASKS = in_database(empty)
    recorder = MigrationRecorder(connections[empty])
    recorder.ensure_schema()
    recorder.record_applied("pgqueue", "0001_initial")
    assert (check_records([empty]), ids(check_tables([empty]))) == ([], ["pgqueue.W003"])
    migrate(empty, skip_checks=False)
    assert "pgqueue_message" in tables(empty)
    assert check_records([empty]) == check_tables([empty]) == []


def test_a_queue_that_the_router_does_not_migrate_is_an_error(settings: Settings) -> None:
    assert check_routing(None) == []
    settings.DATABASE_ROUTERS = ["tests.promises.databases.test_where_it_belongs.OnlyDefault"]
    found = check_routing(None)
    assert ids(found) == ["pgqueue.E007"]
    assert "The queue is in the database 'jobs', but DATABASE_ROUTERS allow no migration" in found[0].msg
    assert "PgQueueRouter" in (found[0].hint or "")
    for settings.TENANT_APPS in ([], None):
        [tenants] = check_routing(None)
        assert 'Put "django_pgqueue" into SHARED_APPS, and not into TENANT_APPS.' in (tenants.hint or "")
    del settings.TENANT_APPS
    settings.TENANT_TYPES = {"public": {"APPS": []}, "shop": {"APPS": ["shop"]}}
    [types] = check_routing(None)
    assert types.hint == tenants.hint


def test_migrations_of_a_tenant_are_none_of_the_queue(settings: Settings, monkeypatch: pytest.MonkeyPatch) -> None:
    """django-tenants runs the checks in each tenant's schema, where its router allows no shared app."""
    settings.DATABASE_ROUTERS = ["tests.promises.databases.test_where_it_belongs.OnlyDefault"]
    settings.TENANT_APPS = ["shop"]
    monkeypatch.setattr(connections["jobs"], "schema_name", "public", raising=False)
    assert ids(check_routing(None)) == ["pgqueue.E007"]
    monkeypatch.setattr(connections["jobs"], "schema_name", "tenant")
    assert check_routing(None) == []
    settings.PUBLIC_SCHEMA_NAME = "tenant"
    assert ids(check_routing(None)) == ["pgqueue.E007"]


@pytest.mark.parametrize("name", ["django_pgqueue", "django_pgqueue.apps.PgQueueConfig"])
def test_a_queue_of_each_tenant_is_a_warning(settings: Settings, name: str) -> None:
    settings.TENANT_APPS = ["shop", name]
    [found] = check_routing(None)
    assert found.id == "pgqueue.W009"
    assert 'Put "django_pgqueue" into SHARED_APPS' in (found.hint or "")
    assert "which no worker serves" in found.msg
    settings.TENANT_APPS = ["shop"]
    assert check_routing(None) == []
    settings.TENANT_TYPES = {"public": {"APPS": [name]}, "shop": {"APPS": ["shop"]}}
    assert check_routing(None) == []
    settings.TENANT_TYPES["shop"]["APPS"] += [name]
    assert ids(check_routing(None)) == ["pgqueue.W009"]


def test_atomic_tasks_that_could_write_elsewhere_only_are_a_warning(
    settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings.TASKS = in_database("jobs")
    pack = task(atomic=True)(do_nothing.func)
    monkeypatch.setattr(registry, "imported", lambda: [do_nothing, pack])
    [found] = check_atomic(None)
    assert found.id == "pgqueue.W010"
    assert found.msg == (
        "The queue is in the database 'jobs', but DATABASE_ROUTERS write no model of the project there: "
        "tests.support.tasks.do_nothing with atomic=True may write to 'default', which is no part of that transaction."
    )
    settings.DATABASE_ROUTERS = [*settings.DATABASE_ROUTERS, ReceiptsToJobs()]
    assert check_atomic(None) == []
    settings.DATABASE_ROUTERS = [NeedsARequest()]
    assert check_atomic(None) == []
    settings.TASKS, settings.DATABASE_ROUTERS = in_database("default"), []
    assert check_atomic(None) == []


class ReceiptsToJobs:
    """A project's router, for one of its models."""

    def db_for_write(self, model: Any, **_: object) -> str | None:
        return "jobs" if model.__name__ == "Receipt" else None


class NeedsARequest:
    """A router that chooses by the tenant of a request, and there is none."""

    def db_for_write(self, *_: object, **__: object) -> str:
        raise LookupError


class OnlyDefault:
    """A router that knows of nothing but the default database."""

    def allow_migrate(self, db: str, *_: object, **__: object) -> bool:
        return db == "default"


def test_tables_that_no_model_would_use_are_a_warning(settings: Settings) -> None:
    settings.TASKS = in_database("jobs")
    assert check_routing(None) == []
    settings.DATABASE_ROUTERS = []
    [found] = check_routing(None)
    assert found.id == "pgqueue.W002"
    assert found.msg == (
        "The queue is in the database 'jobs', but DATABASE_ROUTERS allow migrations of 'django_pgqueue' in 'default', "
        "too."
    )
    settings.TASKS = in_database("default")
    assert check_routing(None) == []


@pytest.mark.parametrize(
    ("other", "said"),
    [
        ({"QUEUES": ["mail"], "OPTIONS": {"DATABASE": "jobs", "LOCK_SECONDS": 5}}, "share the queues 'mail'"),
        ({"QUEUES": [], "OPTIONS": {"DATABASE": "jobs", "LOCK_SECONDS": 5}}, "share the queues 'default', 'mail'"),
        ({"QUEUES": ["slow"], "OPTIONS": {"DATABASE": "jobs", "HISTORY_DAYS": 5}}, "share the history"),
        ({"QUEUES": ["mail"], "OPTIONS": {"DATABASE": "jobs", "VERSION": "2024.10.1"}}, "share the queues 'mail'"),
        ({"QUEUES": ["mail"], "OPTIONS": {"DATABASE": "jobs", "UNKNOWN_TASK_SECONDS": 0}}, "share the queues 'mail'"),
        ({"QUEUES": ["slow"], "OPTIONS": {"DATABASE": "jobs", "LOCK_SECONDS": 5, "VERSION": "2024.10.1"}}, None),
        ({"QUEUES": ["mail"], "OPTIONS": {"DATABASE": "jobs", "MAX_ATTEMPTS": 5}}, None),
        ({"QUEUES": ["mail"], "OPTIONS": {"DATABASE": "default", "LOCK_SECONDS": 5}}, None),
    ],
)
def test_contradictory_backends_are_reported(settings: Settings, other: dict[str, Any], said: str | None) -> None:
    jobs = {"BACKEND": BACKEND, "QUEUES": ["default", "mail"], "OPTIONS": {"DATABASE": "jobs"}}
    settings.TASKS = {"default": jobs, "other": {"BACKEND": BACKEND, **other}}
    found = check_sharing(None)
    if said is None:
        assert found == []
    else:
        assert ids(found) == ["pgqueue.W001"]
        assert f"TASKS['default'] and TASKS['other'] {said} in the database 'jobs', but" in found[0].msg


def test_an_invalid_database_is_left_to_another_check(settings: Settings) -> None:
    for wrong in ("nowhere", ["jobs"], None):
        settings.TASKS = in_database(wrong)  # type: ignore[arg-type]
        assert (check_routing(None), check_sharing(None), check_tables(["default"])) == ([], [], [])
