"""The names under which a project finds the package: the app's label, and the distribution that it installs."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from django.apps import apps
from django.contrib.auth import get_permission_codename
from django.contrib.auth.models import Permission
from django.db.migrations.loader import MigrationLoader
from django.urls import reverse

from django_pgqueue.conf import APP_LABEL
from django_pgqueue.distribution import DISTRIBUTION, install_command
from django_pgqueue.models import Message

if TYPE_CHECKING:
    from collections.abc import Iterator

ROOT = Path(__file__).resolve().parents[2]
PACKAGE = ROOT / "django_pgqueue"

PYPROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
# Written in two parts, so that this file does not have it.  The name of our account on a host may stand in an address.
OF_A_STRANGER = re.compile("django" + r"-pgqueue(?!/django-tasks-pgqueue)", re.IGNORECASE)
READ = {"", ".cfg", ".css", ".html", ".ini", ".js", ".md", ".py", ".service", ".sql", ".toml", ".txt", ".yaml", ".yml"}
FOLDERS = (".ci", ".github", "django_pgqueue", "docs", "example_project", "sql", "tests")

pytestmark = pytest.mark.once


def test_the_label_of_the_app_and_of_its_migrations_is_the_name_of_the_package() -> None:
    config = apps.get_app_config("django_pgqueue")
    assert (config.label, APP_LABEL, config.name) == ("django_pgqueue", "django_pgqueue", "django_pgqueue")
    assert not apps.is_installed("pgqueue")
    migrations = MigrationLoader(None).disk_migrations
    assert {label for label, _ in migrations if "pgqueue" in label} == {"django_pgqueue"}


def test_permissions_and_admin_urls_have_the_label(db: None) -> None:
    assert Permission.objects.filter(content_type__app_label="django_pgqueue", codename="see_content").exists()
    assert not Permission.objects.filter(content_type__app_label="pgqueue").exists()
    assert get_permission_codename("view", Message._meta) == "view_message"
    assert reverse("admin:django_pgqueue_message_changelist") == "/admin/django_pgqueue/message/"


def test_templates_and_styles_follow_the_label() -> None:
    assert {path.name for path in (PACKAGE / "templates" / "admin").iterdir()} == {"django_pgqueue"}
    styles = "".join(path.read_text() for path in (PACKAGE / "static").rglob("*.css"))
    # Django's admin gives the body of each page the class "app-<label>".
    assert set(re.findall(r"\.app-(\w+)", styles)) == {"django_pgqueue"}


def test_tables_keep_their_names() -> None:
    tables = {model._meta.db_table for model in apps.get_app_config("django_pgqueue").get_models()}
    assert {"pgqueue_message", "pgqueue_attempt", "pgqueue_worker", "pgqueue_report_hour"} <= tables
    assert {table for table in tables if not table.startswith("pgqueue_")} == set()


def texts() -> Iterator[Path]:
    """Every file that a reader, an installer or a program reads."""
    found = [*ROOT.glob("*.*"), *(path for folder in FOLDERS for path in (ROOT / folder).rglob("*"))]
    for path in found:
        if path.is_file() and path.suffix in READ and not {"__pycache__", "output"} & set(path.parts):
            yield path


def test_no_message_page_template_or_comment_has_a_foreign_name() -> None:
    read = set(texts())
    assert {ROOT / "README.md", PACKAGE / "checks.py", ROOT / "docs" / "pages" / "data" / "spark.md"} <= read
    found = [
        f"{path.relative_to(ROOT)}:{number}: {line.strip()}"
        for path in sorted(read)
        for number, line in enumerate(path.read_text(encoding="utf-8", errors="replace").splitlines(), start=1)
        if OF_A_STRANGER.search(line)
    ]
    assert found == []


def test_the_search_finds_a_foreign_name_and_skips_ours() -> None:
    stranger = "django" + "-pgqueue"
    assert OF_A_STRANGER.search(f"pip install -U '{stranger}[prometheus]'")
    assert not OF_A_STRANGER.search(f"{DISTRIBUTION} django_pgqueue github.com/{stranger}/{DISTRIBUTION}")


def test_the_distribution_has_the_name_of_the_constant() -> None:
    assert PYPROJECT["project"]["name"] == DISTRIBUTION == "django-tasks-pgqueue"
    assert install_command("cli") == "pip install 'django-tasks-pgqueue[cli]'"


def test_the_package_contains_the_name_only_in_the_constant() -> None:
    modules = [path for path in PACKAGE.rglob("*.py") if DISTRIBUTION in path.read_text(encoding="utf-8")]
    assert [path.relative_to(PACKAGE).as_posix() for path in modules] == ["distribution.py"]


def test_a_message_names_an_extra_that_exists() -> None:
    calls = re.compile(r"install_command\(['\"](\w+)['\"]\)")
    named = {extra for path in PACKAGE.rglob("*.py") for extra in calls.findall(path.read_text(encoding="utf-8"))}
    assert named == {"cli", "django52", "otel", "prometheus", "spark"}
    assert named <= set(PYPROJECT["project"]["optional-dependencies"])
