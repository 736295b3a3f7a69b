"""A second connection to the test database, and what the tests look at."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import psycopg
import pytest
from django.db import connections
from psycopg.conninfo import make_conninfo

from django_pgqueue.tasks import registry

if TYPE_CHECKING:
    from collections.abc import Iterator


@pytest.fixture
def stranger(transactional_db: None) -> Iterator[psycopg.Connection[Any]]:
    """Somebody else's connection, which sees what is committed.  Django empties the tables afterwards."""
    settings: dict[str, Any] = connections["default"].settings_dict
    conninfo = make_conninfo(
        dbname=settings["NAME"],
        user=settings["USER"],
        password=settings["PASSWORD"],
        host=settings["HOST"],
        port=settings["PORT"] or None,
    )
    with psycopg.connect(conninfo, autocommit=True) as connection:
        yield connection


@pytest.fixture
def fresh_registry() -> Iterator[None]:
    """Forgets which tasks were found: for tests that make and unmake tasks."""
    registry.forget()
    yield
    registry.forget()


@contextmanager
def no_queries(alias: str = "default") -> Iterator[None]:
    """Nothing is said to the database."""

    def refuse(_execute: Any, sql: str, *_: Any) -> Any:
        pytest.fail(f"The database was asked: {sql}")

    with connections[alias].execute_wrapper(refuse):
        yield
