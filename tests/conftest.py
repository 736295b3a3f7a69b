"""What every test may need."""

from __future__ import annotations

import logging
import signal
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from django.db import connection
from hypothesis import settings

from django_pgqueue.functions import sql_files
from tests.support.emptying import emptied_quickly

if TYPE_CHECKING:
    from collections.abc import Iterator

    from django.db.backends.base.base import BaseDatabaseWrapper
    from pytest_django import DjangoDbBlocker

__all__ = ["emptied_quickly"]

settings.register_profile("a machine of any speed", deadline=None)
settings.load_profile("a machine of any speed")

for number in (signal.SIGHUP, signal.SIGINT):
    if signal.getsignal(number) == signal.SIG_IGN:
        # By nohup, or a shell without job control.  The tests go on when they get the signal, and what they start has
        # it as if somebody had typed its command.
        signal.signal(number, lambda *_: None)

HERE = Path(__file__).parent
LOGGERS = [logging.getLogger(name) for name in ("django_pgqueue", "django.tasks", "django_tasks")]
ON_EVERY_PYTHON = {"test_migrations.py", "test_layers.py", "test_public_names.py"}
ONCE = {"bench", "project", "proofs", "spark", "sql"}
SWEEPS = {
    "test_command_lines.py",
    "test_crashes.py",
    "test_http.py",
    "test_malformed.py",
    "test_scheduler.py",
    "test_sql_fuzzer.py",
}


@pytest.fixture(scope="session")
def django_db_setup(django_db_setup: None, django_db_blocker: DjangoDbBlocker) -> None:
    """As pytest-django's.  The tests move the clock of the queue, in sessions of their own too."""
    from django_pgqueue.testing.clock import make_movable

    with django_db_blocker.unblock():
        make_movable("default")


@pytest.fixture(autouse=True)
def _logging_as_before() -> Iterator[None]:
    """A command that runs in the process of the tests sets up logging for the terminal."""
    before = [(logger, logger.level, logger.handlers[:], logger.filters[:], logger.propagate) for logger in LOGGERS]
    yield
    for logger, level, handlers, filters, propagates in before:
        logger.setLevel(level)
        logger.handlers, logger.filters, logger.propagate = handlers, filters, propagates


@pytest.fixture
def fixed_clock(db: None) -> BaseDatabaseWrapper:
    """The test database with the clock of a queue that is in use, until the end of the test's transaction."""
    with connection.cursor() as cursor:
        for name in ("pgqueue_clock", "pgqueue_now"):
            cursor.execute(sql_files.current(name))
    return connection


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Marks what is the same on every Python and Django, which continuous integration does on one of the two, what
    starts worker processes, and what needs the database, which is made only where a marked test is selected.
    """
    for item in items:
        folder = item.path.relative_to(HERE).parts[0] if item.path.is_relative_to(HERE) else ""
        is_marked = any(item.get_closest_marker(name) for name in ("browser", "spark"))
        is_once = folder in ONCE or item.path.name in SWEEPS or is_marked
        if is_once and item.path.name not in ON_EVERY_PYTHON:
            item.add_marker(pytest.mark.once)
        fixtures = getattr(item, "fixturenames", ())
        if "start" in fixtures:  # the processes of workers
            item.add_marker(pytest.mark.slow)
        if "test_database" in fixtures and "db" not in fixtures and item.get_closest_marker("django_db") is None:
            item.add_marker(pytest.mark.django_db)
