"""System checks: what is wrong in the settings is said before anything runs, by name and with the next step."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from django.core.management import call_command
from django.core.management.base import SystemCheckError
from django.db import connection, models
from django.test.utils import isolate_apps

from django_pgqueue import checks
from django_pgqueue.backend import PgQueueBackend
from django_pgqueue.backend.lookup import pgqueue_backends
from django_pgqueue.checks import check_backends, check_foreign_keys, check_records, check_settings
from django_pgqueue.compat import task_backends
from django_pgqueue.models import Message, Overview, Schedule
from django_pgqueue.tasks import task
from tests.support.django_tasks_api import DUMMY, PACKAGE

if TYPE_CHECKING:
    from pytest_django.fixtures import Settings

OURS = "django_pgqueue.backend.PgQueueBackend"
ROOT = Path(__file__).resolve().parent.parent.parent


class Subclass(PgQueueBackend):
    """A project's own."""


class Foreign(PgQueueBackend.__base__):  # type: ignore[misc,name-defined]
    """Must not be made by a check that it does not concern."""

    def __init__(self, *_: Any, **__: Any) -> None:
        raise AssertionError

    def enqueue(self, task: Any, args: Any, kwargs: Any) -> Any: ...


def factory(alias: str, params: dict[str, Any]) -> Any:
    raise AssertionError


def found(settings: Settings, **params: Any) -> list[tuple[str | None, str, str]]:
    settings.TASKS = {"jobs": {"BACKEND": OURS, **params}}
    return [(message.id, message.msg, message.hint or "") for message in check_backends(None)]


def test_the_defaults_pass_the_checks(settings: Settings) -> None:
    assert found(settings) == []
    assert found(settings, QUEUES=[], OPTIONS={}) == []


def test_every_option_can_be_set(settings: Settings) -> None:
    options = {
        "DATABASE": "default",
        "MAX_ATTEMPTS": 5,
        "MAX_CONTENT_BYTES": 10_000_000,
        "LOCK_SECONDS": 0.5,
        "GRACE_SECONDS": 60,
        "UNKNOWN_TASK_SECONDS": 0,
        "HISTORY_DAYS": None,
        "LAKE_DAYS": 0,
        "LISTEN": False,
        "SENSITIVE": ["card"],
        "VERSION": "2024.10.1",
    }
    assert found(settings, QUEUES=["default", "mail"], OPTIONS=options) == []


@pytest.mark.parametrize(
    ("key", "says"),
    [
        ("LOCK_SECONDS", "It is an option: write it into OPTIONS."),
        ("database", "It is an option: write it into OPTIONS."),
        ("QUEUE", "The keys are BACKEND, QUEUES, OPTIONS."),
        (5, "The keys are BACKEND, QUEUES, OPTIONS."),
    ],
)
def test_a_key_beside_options_is_a_warning_that_says_where_it_belongs(settings: Settings, key: Any, says: str) -> None:
    settings.TASKS = {"jobs": {"BACKEND": OURS, key: 3}}
    [warning] = check_backends(None)
    assert (warning.id, warning.hint) == ("pgqueue.W008", says)
    assert warning.msg == f"TASKS['jobs'] has the key {key!r}, which the backend does not read."


@pytest.mark.parametrize("key", ["MAX_ATEMPTS", "max_attempts", "database", "names", "lock_ms", "", 5])
def test_an_unknown_key_is_an_error_that_names_it(settings: Settings, key: Any) -> None:
    [(check_id, message, hint)] = found(settings, OPTIONS={key: 3})
    assert check_id == "pgqueue.E001"
    assert message == f"TASKS['jobs']['OPTIONS'] has the unknown key {key!r}."
    assert "MAX_ATTEMPTS, MAX_CONTENT_BYTES" in hint


def test_an_unknown_key_does_not_stop_a_site(settings: Settings) -> None:
    settings.TASKS = {"default": {"BACKEND": OURS, "OPTIONS": {"MAX_ATEMPTS": 3, "LOCK_SECONDS": 5}}}
    backend = task_backends["default"]
    assert isinstance(backend, PgQueueBackend)
    assert (backend.settings.max_attempts, backend.settings.lock_seconds) == (None, 5)


@pytest.mark.parametrize(
    ("key", "value"),
    [
        *(("MAX_ATTEMPTS", value) for value in (0, -1, 2.5, "3", True, 10**9)),
        *(("HISTORY_DAYS", value) for value in (0, -1, 0.5, "30", True, 10**9)),
        *(("MAX_CONTENT_BYTES", value) for value in (0, -1, 1e6, "1MB", None, True, 2**24 + 1)),
        *(("LOCK_SECONDS", value) for value in (0, -5, "60", None, True, float("nan"), float("inf"), 1e300)),
        *(("GRACE_SECONDS", value) for value in (0, -5, "25", None, True, float("nan"), float("inf"))),
        *(("UNKNOWN_TASK_SECONDS", value) for value in (-1, 2.5, "3600", None, True, float("nan"), 10**10)),
        *(("LAKE_DAYS", value) for value in (-1, 0.5, "7", None, True, 10**9)),
        *(("LISTEN", value) for value in ("no", 0, 1, None)),
        *(("VERSION", value) for value in (1, 2024.10, "", "x" * 101, "a\nb", "\udcff", True)),
        *(("SENSITIVE", value) for value in ("card", 1, None, [1], [""])),
    ],
)
def test_an_invalid_value_is_an_error_with_the_valid_ones(settings: Settings, key: str, value: Any) -> None:
    [(check_id, message, hint)] = found(settings, OPTIONS={key: value})
    assert check_id == "pgqueue.E002"
    assert message == f"TASKS['jobs']['OPTIONS'][{key!r}] is {value!r}."
    assert hint.startswith("It must be ")


@pytest.mark.parametrize(
    ("token", "shown"),
    [
        ("geheim", "6 characters long"),
        ("", "0 characters long"),
        (4711, "of the type int"),
        (b"geheim", "of the type bytes"),
    ],
)
def test_an_invalid_token_is_an_error_that_does_not_show_it(settings: Settings, token: Any, shown: str) -> None:
    [(check_id, message, hint)] = found(settings, OPTIONS={"METRICS_TOKEN": token})
    assert (check_id, message) == ("pgqueue.E002", f"TASKS['jobs']['OPTIONS']['METRICS_TOKEN'] is {shown}.")
    assert hint == "It must be a text of at least 16 characters, or None."


def test_a_version_that_looks_like_a_hash_is_a_warning(settings: Settings) -> None:
    [(check_id, message, hint)] = found(settings, OPTIONS={"VERSION": "2d06e61"})
    assert check_id == "pgqueue.W006"
    assert "['VERSION'] is '2d06e61', which looks like the hash of a commit" in message
    assert "a number of a build" in hint
    for version in ("20241001a", "2024.10.1", "1234567", "release-7"):
        assert found(settings, OPTIONS={"VERSION": version}) == []


@pytest.mark.parametrize("options", [None, [("METRICS_TOKEN", "geheim")], "LISTEN", 5])
def test_options_are_a_dictionary(settings: Settings, options: Any) -> None:
    [(check_id, message, _)] = found(settings, OPTIONS=options)
    assert check_id == "pgqueue.E002"
    assert f"TASKS['jobs']['OPTIONS'] is of the type {type(options).__name__}, so" in message
    assert isinstance(task_backends["jobs"], PgQueueBackend)


@pytest.mark.parametrize("database", ["jobs", "", None, 5, ["default"]])
def test_the_database_is_one_of_databases(settings: Settings, database: Any) -> None:
    [(check_id, message, hint)] = found(settings, OPTIONS={"DATABASE": database})
    assert check_id == "pgqueue.E003"
    assert f"is {database!r}, which is not in DATABASES" in message
    assert hint == "DATABASES has default."


@pytest.mark.parametrize("queues", ["mail", None, 5, ["mail", ""], ["q" * 256], ["a\x00"], [5], {"mail": 1}])
def test_queues_is_a_list_of_names(settings: Settings, queues: Any) -> None:
    [(check_id, message, hint)] = found(settings, QUEUES=queues)
    assert check_id == "pgqueue.E005"
    assert message == f"TASKS['jobs']['QUEUES'] is {queues!r}."
    assert "empty for any name" in hint
    settings.TASKS = {"default": {"BACKEND": OURS, "QUEUES": queues}}
    task(factory)  # the check comes after the modules with tasks


def test_the_database_commits_by_itself(settings: Settings, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(connection.settings_dict, "AUTOCOMMIT", False)
    [(check_id, message, _)] = found(settings)
    assert check_id == "pgqueue.E013"
    assert message.startswith("DATABASES['default']['AUTOCOMMIT'] is False: nothing commits")


def test_every_mistake_of_every_alias_is_reported(settings: Settings) -> None:
    settings.TASKS = {
        "first": {"BACKEND": OURS, "OPTIONS": {"TYPO": 1, "LISTEN": "no"}},
        "second": {"BACKEND": f"{__name__}.Subclass", "OPTIONS": {"DATABASE": "other"}},
    }
    assert [(message.id, message.msg.split("'")[1]) for message in check_backends(None)] == [
        ("pgqueue.E001", "first"),
        ("pgqueue.E002", "first"),
        ("pgqueue.E003", "second"),
    ]


def test_other_backends_are_neither_made_nor_checked(settings: Settings) -> None:
    settings.TASKS = {
        "default": {"BACKEND": OURS},
        "dummy": {"BACKEND": DUMMY, "OPTIONS": {"anything": 1}},
        "foreign": {"BACKEND": f"{__name__}.Foreign"},
        "factory": {"BACKEND": f"{__name__}.factory"},
        "missing": {"BACKEND": "does.not.exist"},
        "nothing": {},
        "our subclass": {"BACKEND": f"{__name__}.Subclass", "QUEUES": []},
    }
    assert check_backends(None) == []
    assert list(pgqueue_backends()) == ["default", "our subclass"]


@pytest.mark.django_db
class TestManagePy:
    def test_check_finds_nothing_in_these_settings(self, capsys: pytest.CaptureFixture[str]) -> None:
        call_command("check")
        assert "System check identified no issues" in capsys.readouterr().out

    def test_check_fails_with_the_message(self, settings: Settings) -> None:
        settings.TASKS = {"default": {"BACKEND": OURS, "QUEUES": [], "OPTIONS": {"DATABSE": "default"}}}
        with pytest.raises(
            SystemCheckError, match=r"(?s)\(pgqueue\.E001\).*unknown key 'DATABSE'.*HINT: The options are"
        ):
            call_command("check")


def check_of_a_project(tmp_path: Path, *, apps: list[str], engine: str) -> str:
    """The output of ``manage.py check`` in a project that has tasks, and a database that nobody can reach."""
    database = {"ENGINE": f"django.db.backends.{engine}", "NAME": "nowhere", "HOST": "192.0.2.1"}
    make_project(tmp_path, apps, database)
    return said_by_check(tmp_path, "their_settings")


def enqueue_of_a_project(tmp_path: Path, *, apps: list[str], database: dict[str, Any]) -> str:
    """The last line of a program that enqueues a task in a project that was never migrated."""
    make_project(tmp_path, apps, database)
    program = "import django; django.setup(); from their_app.models import post; post.enqueue()"
    ended = subprocess.run(
        [sys.executable, "-c", program],
        cwd=tmp_path,
        env={"PYTHONPATH": f"{tmp_path}:{ROOT}", "PATH": "", "DJANGO_SETTINGS_MODULE": "their_settings"},
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )
    return ended.stderr.splitlines()[-1]


def make_project(tmp_path: Path, apps: list[str], database: dict[str, Any]) -> None:
    apps = [*apps, "their_app"] + (["django_tasks"] if PACKAGE == "django_tasks" else [])
    (tmp_path / "their_settings.py").write_text(
        f"INSTALLED_APPS = {apps!r}\n"
        "USE_TZ = True\n"
        f"DATABASES = {{'default': {database!r}}}\n"
        f"TASKS = {{'default': {{'BACKEND': {OURS!r}}}}}\n"
    )
    (tmp_path / "their_app").mkdir()
    (tmp_path / "their_app" / "models.py").write_text(
        f"from {PACKAGE} import task\n@task(priority=3)\ndef post(): ...\n"
    )


def said_by_check(folder: Path, settings: str, *command: str) -> str:
    ended = subprocess.run(
        [sys.executable, "-W", "error", "-m", "django", *(command or ("check",)), "--settings", settings],
        cwd=folder,
        env={"PYTHONPATH": f"{folder}:{ROOT}", "PATH": ""},
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )
    return ended.stdout + ended.stderr


def test_a_database_that_is_not_postgresql_is_an_error(tmp_path: Path) -> None:
    said = check_of_a_project(tmp_path, apps=["django_pgqueue"], engine="sqlite3")
    assert "(pgqueue.E004) The queue of TASKS['default'] is in the database 'default', which is sqlite." in said
    assert "point DATABASE in OPTIONS at a PostgreSQL database" in said


def test_a_backend_that_stands_in_tasks_without_an_alias_is_an_error(settings: Settings) -> None:
    settings.TASKS = {"BACKEND": OURS}
    assert pgqueue_backends() == {}
    [error] = check_backends(None)
    assert (error.id, error.msg) == ("pgqueue.E002", "TASKS['BACKEND'] is of the type str.")
    assert error.hint is not None
    assert 'It must be a dictionary: TASKS = {"default": {"BACKEND": ' in error.hint


def test_an_app_missing_in_installed_apps_is_an_error(tmp_path: Path) -> None:
    said = check_of_a_project(tmp_path, apps=[], engine="postgresql")
    assert "(pgqueue.E006) TASKS['default'] is a PgQueueBackend, but 'django_pgqueue' is not in INSTALLED_APPS." in said
    assert "run manage.py migrate" in said


def test_another_label_of_the_app_is_an_error(tmp_path: Path) -> None:
    make_project(tmp_path, ["their_app.apps.Jobs"], {"ENGINE": "django.db.backends.postgresql", "NAME": "nowhere"})
    (tmp_path / "their_app" / "apps.py").write_text(
        "from django_pgqueue.apps import PgQueueConfig\nclass Jobs(PgQueueConfig):\n    label = 'jobs'\n"
    )
    said = said_by_check(tmp_path, "their_settings")
    assert "(pgqueue.E014) The app 'django_pgqueue' has the label 'jobs', by Jobs" in said, said
    assert "Remove label from that AppConfig" in said


def test_a_foreign_key_to_a_row_of_the_queue_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    def to(model: Any, **more: Any) -> Any:
        return models.ForeignKey(model, models.DO_NOTHING, related_name="+", **more)

    with isolate_apps("example_project.shop") as isolated:
        shop = type("Meta", (), {"app_label": "shop"})
        columns = {"job": to(Message), "loose": to(Message, db_constraint=False), "lost": to("shop.Nothing")}
        columns |= {"schedule": to(Schedule), "queue": to(Overview)}  # only people delete one
        mine = type("Mine", (Message,), {"__module__": __name__, "Meta": type("Meta", (shop,), {"proxy": True})})
        columns["mine"] = to(mine)
        many = {"jobs": models.ManyToManyField(Message, related_name="+")}
        type("Order", (models.Model,), {"__module__": __name__, "Meta": shop, **columns, **many})
        type("OwnMessage", (Message,), {"__module__": __name__, "Meta": shop})
    monkeypatch.setattr(checks, "apps", isolated)
    found = check_foreign_keys(None)
    assert {error.id for error in found} == {"pgqueue.E015"}
    assert sorted(error.msg.partition(". ")[0] for error in found) == [
        "shop.Order.job is a foreign key to django_pgqueue.Message",
        "shop.Order.mine is a foreign key to shop.Mine",
        "shop.Order_jobs.message is a foreign key to django_pgqueue.Message",
        "shop.OwnMessage.message_ptr is a foreign key to django_pgqueue.Message",
    ]


def empty_database() -> dict[str, Any]:
    """A database of the tests' server that has no queue."""
    keys = ("ENGINE", "HOST", "PORT", "USER", "PASSWORD")
    return {key: str(connection.settings_dict[key]) for key in keys} | {"NAME": "postgres"}


def test_an_enqueue_without_the_app_asks_for_it(tmp_path: Path, db: None) -> None:
    said = enqueue_of_a_project(tmp_path, apps=[], database=empty_database())
    assert "'django_pgqueue' is not in INSTALLED_APPS. Add it, and run manage.py migrate --database default" in said


def test_an_enqueue_before_the_migration_asks_for_it(tmp_path: Path, db: None) -> None:
    said = enqueue_of_a_project(tmp_path, apps=["django_pgqueue"], database=empty_database())
    assert "Run manage.py migrate django_pgqueue --database default" in said


def test_an_enqueue_into_sqlite_asks_for_postgresql(tmp_path: Path) -> None:
    sqlite = {"ENGINE": "django.db.backends.sqlite3", "NAME": ":memory:"}
    said = enqueue_of_a_project(tmp_path, apps=["django_pgqueue"], database=sqlite)
    assert "The queue is in the database 'default', which is sqlite, and it needs PostgreSQL." in said


@pytest.mark.parametrize(
    ("setting", "words"),
    [
        ("", "The settings have no TASKS: each enqueue runs its task at once, and nothing comes into the queue."),
        ("TASK = {}", "The settings have no TASKS, but TASK, which Django does not read: each enqueue runs its task"),
    ],
)
def test_settings_without_tasks_are_a_warning_that_names_what_stands_instead(
    tmp_path: Path, setting: str, words: str
) -> None:
    make_project(tmp_path, ["django_pgqueue"], {"ENGINE": "django.db.backends.postgresql", "NAME": "nowhere"})
    with (tmp_path / "their_settings.py").open("a") as file:
        file.write(f"del TASKS\n{setting}\n")
    assert f"(pgqueue.W007) {words}" in said_by_check(tmp_path, "their_settings")
    said = said_by_check(tmp_path, "their_settings", "qdoctor", "--setup")
    assert "missing TASKS names the backend: the settings have no TASKS" in said
    assert "Write into the settings: TASKS = {" in said


def test_settings_with_any_tasks_are_no_warning(settings: Settings) -> None:
    settings.TASKS = {"default": {"BACKEND": DUMMY}}
    assert check_settings(None) == []


def without(tmp_path: Path, package: str) -> None:
    """Hides a package: its import fails as if it were not installed, for this file is found first on the path."""
    (tmp_path / f"{package}.py").write_text(f"raise ModuleNotFoundError('No module named {package}', name='{package}')")


def test_an_admin_without_range_filters_names_what_to_install(tmp_path: Path) -> None:
    without(tmp_path, "rangefilter")
    apps = [f"django.contrib.{name}" for name in ("admin", "auth", "contenttypes", "messages", "sessions")]
    said = check_of_a_project(tmp_path, apps=[*apps, "django_pgqueue"], engine="postgresql")
    assert said.splitlines()[-1].startswith("django.core.exceptions.ImproperlyConfigured: ")
    assert "pip install django-admin-rangefilter" in said


def test_checks_do_not_connect_and_need_range_filters_only_with_an_admin(tmp_path: Path) -> None:
    without(tmp_path, "rangefilter")
    said = check_of_a_project(tmp_path, apps=["django_pgqueue"], engine="postgresql")
    assert "System check identified no issues" in said


@pytest.mark.skipif(PACKAGE != "django_tasks", reason="Django has the tasks API itself")
def test_django_52_without_the_backport_names_what_to_install(tmp_path: Path) -> None:
    without(tmp_path, "django_tasks")
    (tmp_path / "plain_settings.py").write_text("INSTALLED_APPS = ['django_pgqueue']")
    said = said_by_check(tmp_path, "plain_settings")
    assert said.splitlines()[-1].startswith("django.core.exceptions.ImproperlyConfigured: Django 5.2")
    assert "django-tasks-pgqueue[django52]" in said


def test_django_runs_the_checks_of_the_backend(settings: Settings) -> None:
    settings.TASKS = {"default": {"BACKEND": OURS}}
    assert list(task_backends["default"].check()) == []


@pytest.mark.django_db
def test_a_server_that_only_speaks_the_protocol_is_an_error_before_anything_is_migrated() -> None:
    call_command("check", "--database", "default")
    with connection.cursor() as cursor:
        # No other server is here: this one answers as another.
        cursor.execute("create schema another")
        cursor.execute(
            "create function another.version() returns text language sql as "
            "$$ select 'PostgreSQL 15.12-YB-2025.2.3.0-b1'::text $$"
        )
        cursor.execute("set local search_path = another, pg_catalog, public")
        with pytest.raises(SystemCheckError, match=r"pgqueue\.E012.*'default' is YugabyteDB"):
            call_command("check", "--database", "default")


@pytest.mark.django_db
@pytest.mark.parametrize(
    "rights", ["", "grant select on pgqueue_message to {}", "grant select on django_migrations to {}"]
)
def test_a_login_with_few_rights_can_run_the_checks(rights: str) -> None:
    login = "pgqueue_test_few"
    with connection.cursor() as cursor:
        cursor.execute(f"create role {login}; grant usage on schema public to {login}; {rights.format(login)}")
        cursor.execute(f"set local role {login}")
    call_command("check", databases=["default"])
    with connection.cursor() as cursor:  # the transaction goes on
        cursor.execute("select current_user")
        assert cursor.fetchone() == (login,)
        cursor.execute("reset role")


@pytest.mark.django_db
def test_the_owner_still_gets_the_checks_of_bindings_and_records() -> None:
    assert check_records(["default"]) == []
    with connection.cursor() as cursor:
        cursor.execute("delete from pgqueue_binding; alter table pgqueue_message rename to another")
    assert [one.id for one in check_records(["default"])] == ["pgqueue.E011"]
