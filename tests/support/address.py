"""Where the tests' database is, for clients and processes beside Django."""

from __future__ import annotations

import urllib.parse
from typing import Any

from django.db import connections
from psycopg.conninfo import make_conninfo

from example_project.database import database_url


def conninfo(dbname: str | None = None) -> str:
    """For psycopg.  ``dbname``: another database of the same server."""
    settings: dict[str, Any] = connections["default"].settings_dict
    return make_conninfo(
        dbname=dbname or settings["NAME"],
        user=settings["USER"],
        password=settings["PASSWORD"],
        host=settings["HOST"],
        port=settings["PORT"] or None,
    )


def url(dbname: str | None = None) -> str:
    """For DATABASE_URL."""
    name = dbname or connections["default"].settings_dict["NAME"]
    return urllib.parse.urlsplit(database_url("test"))._replace(path=f"/{name}").geturl()


def process_variables(dbname: str | None = None) -> dict[str, str]:
    """For programs of ``tests.support.site`` that join the tests' database, or another one of its server."""
    return {
        "DJANGO_SETTINGS_MODULE": "tests.support.site.settings",
        "DATABASE_URL": url(dbname),
        "PGQUEUE_TEST_DATABASE": dbname or connections["default"].settings_dict["NAME"],
    }
