"""The one place that chooses the database."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from example_project import database

ROOT = Path(__file__).resolve().parents[3]


def test_a_given_url_is_taken_as_it_is(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DATABASE_URL", "postgresql://shop:p%40ss@db.example.com:5433/orders?sslmode=require")
    settings = database.django_databases()["default"]
    assert settings["ENGINE"] == "django.db.backends.postgresql"
    assert (settings["HOST"], settings["PORT"], settings["NAME"]) == ("db.example.com", 5433, "orders")
    assert (settings["USER"], settings["PASSWORD"]) == ("shop", "p@ss")
    assert settings["OPTIONS"] == {"sslmode": "require"}


CONNECT = """
import psycopg
from example_project.database import database_url
print(*psycopg.connect(database_url("test")).execute("show search_path").fetchone())
"""


@pytest.mark.skipif("DATABASE_URL" in os.environ, reason="what libpq adds to a DATABASE_URL is meant")
@pytest.mark.parametrize(
    ("command", "said"),
    [
        (["-c", CONNECT], '"$user", public'),
        (["tests", "--no-spark", "--collect-only", "-q", "tests/values/test_times.py"], "tests collected"),
    ],
    ids=["connect", "tests"],
)
def test_the_environment_of_another_project_changes_nothing(command: list[str], said: str) -> None:
    other = {"PGOPTIONS": "-c search_path=theirs", "PGSSLMODE": "require", "PGSERVICE": "theirs", "PGPORT": "1"}
    assert said in output(command, DJANGO_SETTINGS_MODULE="their.settings", **other)


def test_the_settings_of_another_project_are_not_those_of_the_shop() -> None:
    url = "postgresql://127.0.0.1:1/nobody_connects"
    shown = output(
        ["example_project/manage.py", "diffsettings"], DJANGO_SETTINGS_MODULE="their.settings", DATABASE_URL=url
    )
    assert "ROOT_URLCONF = 'example_project.urls'" in shown


def output(command: list[str], **variables: str) -> str:
    done = subprocess.run(
        [sys.executable, *command],
        cwd=ROOT,
        env=os.environ | variables,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_with_a_given_url_no_server_is_started_or_looked_for() -> None:
    program = (
        "import sys; from example_project.database import database_url; print(database_url());"
        "sys.exit('example_project.development.embedded_postgres' in sys.modules)"
    )
    env = {**os.environ, "DATABASE_URL": "postgresql://somewhere/else", "PGQUEUE_POSTGRES_BIN": "/nowhere"}
    done = subprocess.run(
        [sys.executable, "-c", program], cwd=ROOT, env=env, capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stdout) == (0, "postgresql://somewhere/else\n")
