"""The names under which a project finds the package: the app's label, and the distribution that it installs."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from django.apps import apps
from django.contrib.auth import get_permission_codename
from django.contrib.auth.models import Permission
from django.db.migrations.loader import MigrationLoader
from django.urls import reverse

from django_pgqueue.conf import APP_LABEL
from django_pgqueue.models import Message

ROOT = Path(__file__).resolve().parents[2]
PACKAGE = ROOT / "django_pgqueue"

pytestmark = pytest.mark.once


def test_the_label_of_the_app_is_the_name_of_the_package() -> None:
    config = apps.get_app_config("django_pgqueue")
    assert (config.label, APP_LABEL, config.name) == ("django_pgqueue", "django_pgqueue", "django_pgqueue")
    assert not apps.is_installed("pgqueue")


def test_migrations_are_recorded_under_the_label() -> None:
    ours = {key for key in MigrationLoader(None).disk_migrations if "pgqueue" in key[0]}
    assert {label for label, _ in ours} == {"django_pgqueue"}


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
