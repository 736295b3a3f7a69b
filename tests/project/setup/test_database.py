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
ROOT_URLS = "from django.conf import settings; print(settings.ROOT_URLCONF)"


@pytest.mark.parametrize(
    ("command", "said"),
    [
        (["-c", CONNECT], '"$user", public'),
        (["tests", "--no-spark", "--collect-only", "-q", "tests/values/test_times.py"], "tests collected"),
        (["example_project/manage.py", "shell", "-c", ROOT_URLS], "example_project.urls"),
    ],
    ids=["connect", "tests", "manage"],
)
def test_the_environment_of_another_project_changes_nothing(command: list[str], said: str) -> None:
    other = {"PGOPTIONS": "-c search_path=theirs", "PGSSLMODE": "require", "PGSERVICE": "theirs", "PGPORT": "1"}
    env = {**os.environ, **other, "DJANGO_SETTINGS_MODULE": "their.settings"}
    done = subprocess.run([sys.executable, *command], cwd=ROOT, env=env, capture_output=True, text=True, check=False)
    assert (done.returncode, said in done.stdout) == (0, True), done.stdout + done.stderr


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
