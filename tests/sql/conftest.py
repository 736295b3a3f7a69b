"""Sessions for the tests of the SQL: plain psycopg, no Django between."""

from __future__ import annotations

from contextlib import ExitStack
from typing import TYPE_CHECKING, Any, Protocol

import psycopg
import pytest
from django.db import connections
from psycopg.conninfo import make_conninfo

from tests.sql.sessions import Session

if TYPE_CHECKING:
    from collections.abc import Iterator

TABLES = ("pgqueue_message", "pgqueue_attempt", "pgqueue_worker", "pgqueue_queue", "pgqueue_schedule")


class Connect(Protocol):
    def __call__(self, *, autocommit: bool = True, search_path: str | None = None) -> Session: ...


@pytest.fixture
def conninfo(db: None, test_database: str) -> str:
    """Where the test database is, with the queue as the migrations make it."""
    return test_database


@pytest.fixture(scope="session")
def test_database(django_db_setup: None) -> str:
    """The same for fixtures of a wider scope, in modules whose tests are marked django_db."""
    settings: dict[str, Any] = connections["default"].settings_dict
    return make_conninfo(
        dbname=settings["NAME"],
        user=settings["USER"],
        password=settings["PASSWORD"],
        host=settings["HOST"],
        port=settings["PORT"] or None,
    )


@pytest.fixture
def session(conninfo: str) -> Iterator[Session]:
    """A session whose one transaction is rolled back: for everything that one consumer can see alone."""
    with psycopg.connect(conninfo) as connection:
        yield Session(connection)
        connection.rollback()


@pytest.fixture
def connect(conninfo: str) -> Iterator[Connect]:
    """Opens sessions that commit: for what happens between consumers.  Afterwards the queue is emptied."""
    with ExitStack() as opened:

        def open_session(*, autocommit: bool = True, search_path: str | None = None) -> Session:
            options = f"-c search_path={search_path}" if search_path else ""
            connection = psycopg.connect(conninfo, autocommit=autocommit, options=options)
            opened.callback(connection.close)
            return Session(connection)

        yield open_session
    with psycopg.connect(conninfo, autocommit=True) as connection:
        for table in TABLES:  # far quicker than to truncate the partitions of the history
            connection.execute(f"delete from {table}".encode())
