"""Commands that join the tests' database."""

from __future__ import annotations

import os
import urllib.parse

import pytest
from django.db import connection

from example_project.database import database_url


@pytest.fixture
def environment(transactional_db: None) -> dict[str, str]:
    name = connection.settings_dict["NAME"]
    kept = {key: value for key, value in os.environ.items() if key not in {"NO_COLOR", "COLUMNS", "LINES"}}
    return {
        **kept,
        "DJANGO_SETTINGS_MODULE": "tests.worker.settings",
        "DATABASE_URL": urllib.parse.urlsplit(database_url("test"))._replace(path=f"/{name}").geturl(),
        "PGQUEUE_TEST_DATABASE": name,
        "TERM": "xterm-256color",
    }
