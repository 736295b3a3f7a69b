"""Each behaviour is shown with both faces of the queue: the SQL functions and Python's ``Queue``."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, TypeAlias

import pytest
from django.db import connection

from django_pgqueue.queue import Queue
from tests.promises.seeds.faces import SqlQueue
from tests.support.fixtures.sessions import connect, sessions, test_database

if TYPE_CHECKING:
    from tests.support.fixtures.sessions import Connect

__all__ = ["connect", "sessions", "test_database"]

Face: TypeAlias = "Queue | SqlQueue"
Clock: TypeAlias = Callable[[int], None]


@pytest.fixture(params=["sql", "python"])
def queue(request: pytest.FixtureRequest, transactional_db: None, connect: Connect) -> Face:
    """The queue "mail"."""
    return Queue("mail") if request.param == "python" else SqlQueue(connect(), "mail")


@pytest.fixture
def another(transactional_db: None, connect: Connect) -> SqlQueue:
    """The same queue, used by somebody else at the same time."""
    return SqlQueue(connect(), "mail")


@pytest.fixture
def clock(queue: Face, another: SqlQueue) -> Iterator[Clock]:
    """Sets the clock of everybody who takes part."""

    def set_clock(epoch_ms: int) -> None:
        _set_clock_of_django(str(epoch_ms))
        another.session.set_clock(epoch_ms)
        if isinstance(queue, SqlQueue):
            queue.session.set_clock(epoch_ms)

    yield set_clock
    _set_clock_of_django("")


def _set_clock_of_django(epoch_ms: str) -> None:
    with connection.cursor() as cursor:
        cursor.execute("select set_config('pgqueue.now', %s, false)", [epoch_ms])
