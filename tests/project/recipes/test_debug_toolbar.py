"""django-debug-toolbar beside the admin pages of the queue, and in a worker."""

from __future__ import annotations

import datetime as dt
import os
import subprocess
import sys
from typing import TYPE_CHECKING, Any

import pytest
from django.utils import timezone

from tests.project.recipes.conftest import recipe
from tests.support.processes import ROOT
from tests.support.site.tasks import nothing, write_row
from tests.support.waiting import wait_until
from tests.support.watching import ended

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.support.fixtures.workers import Start

pytest.importorskip("debug_toolbar", reason="django-debug-toolbar is not installed")

ADMIN = """
from tests.settings import INSTALLED_APPS, MIDDLEWARE, TEMPLATES

INSTALLED_APPS = [*INSTALLED_APPS, "tests.support.site"]
DEBUG = True
ROOT_URLCONF = "urls"
STATIC_URL = "static/"
"""
URLS = """
from debug_toolbar.toolbar import debug_toolbar_urls

from example_project.urls import urlpatterns

urlpatterns = [*urlpatterns, *debug_toolbar_urls()]
"""
LOOK = """
import sys

import django

django.setup()
from django.contrib.auth.models import User
from django.test import Client

user = User.objects.create_superuser("toolbar")
client = Client()
client.force_login(user)
for path in sys.argv[1:]:
    page = client.get(path)
    text = page.content.decode()
    assert page.status_code == 200, (path, page.status_code)
    assert 'id="djDebug"' in text, path
    print(path, "SQLPanel" in text)
"""


@pytest.mark.slow
def test_the_admin_pages_and_a_worker_go_on_with_the_toolbar(
    start: Start, project: Callable[..., dict[str, Any]], environment: dict[str, str]
) -> None:
    variables = project(ADMIN + recipe("settings.py", "debug_toolbar"), urls=URLS)
    worker = start(ready=False, **variables)
    wait_until(lambda: "started worker=" in worker.output, "a worker with all these apps starts", 120)
    assert ended(write_row.enqueue("row")).status == "SUCCESSFUL"
    waiting = nothing.using(run_after=timezone.now() + dt.timedelta(days=1)).enqueue()
    pages = ["overview/", "message/", f"message/{waiting.id}/change/", "attempt/", "worker/"]
    paths = [f"/admin/django_pgqueue/{page}" for page in pages]
    looked = subprocess.run(
        [sys.executable, "-c", LOOK, *paths],
        cwd=ROOT, env={**os.environ, **environment, **variables},
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert looked.returncode == 0, looked.stderr
    assert looked.stdout.splitlines() == [f"{path} True" for path in paths]
    assert worker.stop() == 0
    assert "Traceback" not in worker.output
