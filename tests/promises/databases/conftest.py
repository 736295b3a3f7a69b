"""A second database on the tests' server."""

from __future__ import annotations

from contextlib import ExitStack, contextmanager
from typing import TYPE_CHECKING, Any

import psycopg
import pytest
from django.core.management import call_command
from django.db import connections
from psycopg import sql

from tests.support.address import conninfo
from tests.support.fixtures.consumers import consume, diary, effects, environment, rows, session, start

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pytest_django.fixtures import Settings
    from pytest_django.plugin import DjangoDbBlocker

__all__ = ["consume", "diary", "effects", "environment", "rows", "session", "start"]

BACKEND = "django_pgqueue.backend.PgQueueBackend"
TASKS: dict[str, Any] = {
    "default": {"BACKEND": BACKEND, "QUEUES": [], "OPTIONS": {"DATABASE": "jobs"}},
    "here": {"BACKEND": BACKEND, "QUEUES": []},
}


@pytest.fixture(scope="package", autouse=True)
def more_databases(django_db_setup: None, django_db_blocker: DjangoDbBlocker) -> Iterator[None]:
    """``jobs``, with the tables of all apps as after ``manage.py migrate --database jobs``, and ``empty``."""
    with psycopg.connect(conninfo("postgres"), autocommit=True) as session, ExitStack() as stack:
        for alias in ("jobs", "empty"):
            stack.enter_context(database(session, alias))
        with django_db_blocker.unblock():
            call_command("migrate", database="jobs", verbosity=0)
        yield


@contextmanager
def database(session: psycopg.Connection[Any], alias: str) -> Iterator[None]:
    name = f"{connections.settings['default']['NAME']}_{alias}"
    drop = sql.SQL("drop database if exists {} with (force)").format(sql.Identifier(name))
    session.execute(drop)
    session.execute(sql.SQL("create database {}").format(sql.Identifier(name)))
    of_default = connections.settings["default"]
    connections.settings[alias] = {**of_default, "NAME": name, "TEST": {**of_default["TEST"], "NAME": None}}
    try:
        yield
    finally:
        connections[alias].close()
        del connections[alias]
        del connections.settings[alias]
        session.execute(drop)


@pytest.fixture
def empty() -> Iterator[str]:
    """The alias of an empty database."""
    again = "drop schema public cascade; create schema public"
    yield "empty"
    with connections["empty"].cursor() as cursor:
        cursor.execute(again)


@pytest.fixture(autouse=True)
def two_queues(settings: Settings) -> None:
    settings.TASKS = TASKS
    settings.DATABASE_ROUTERS = ["django_pgqueue.routers.PgQueueRouter"]
