"""Sessions for the tests of the SQL: plain psycopg, no Django between."""

from __future__ import annotations

from contextlib import ExitStack
from typing import TYPE_CHECKING, Any, Protocol

import psycopg
import pytest
from django.db import connections
from psycopg.conninfo import make_conninfo
from psycopg.pq import TransactionStatus

from tests.support.sessions import IDLE_SESSIONS, Session

if TYPE_CHECKING:
    from collections.abc import Iterator

TABLES = (
    "pgqueue_message",
    "pgqueue_attempt",
    "pgqueue_worker",
    "pgqueue_queue",
    "pgqueue_schedule",
    "pgqueue_channel",
    "pgqueue_lane",
    "pgqueue_arrival",
    "pgqueue_ended",
    "pgqueue_exchange",
    "pgqueue_ledger",
    "pgqueue_staged",
    "pgqueue_report_hour",
    "pgqueue_report_queue",
    "pgqueue_report_error",
)


class Connect(Protocol):
    def __call__(self, *, autocommit: bool = True) -> Session: ...


class Sessions:
    """Sessions that are used by one test after the other: a new one costs more than most tests."""

    def __init__(self, conninfo: str) -> None:
        self.conninfo = conninfo
        self.idle: list[Session] = []

    def take(self, *, autocommit: bool) -> Session:
        session = self.idle.pop() if self.idle else self._new()
        session.connection.autocommit = autocommit
        return session

    def give_back(self, session: Session) -> None:
        connection = session.connection
        if session.listens or connection.closed or connection.info.transaction_status is TransactionStatus.ACTIVE:
            connection.close()
            return
        connection.rollback()
        connection.isolation_level = None
        connection.autocommit = True
        connection.execute("reset all")
        self.idle.append(session)

    def _new(self) -> Session:
        # A test that goes wrong may wait for a lock that nobody gives back: it should say so, and not hang.
        return Session(
            psycopg.connect(self.conninfo, options="-c statement_timeout=45s", application_name=IDLE_SESSIONS)
        )

    def close(self) -> None:
        for session in self.idle:
            session.connection.close()


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


@pytest.fixture(scope="session")
def sessions(test_database: str) -> Iterator[Sessions]:
    sessions = Sessions(test_database)
    yield sessions
    sessions.close()


@pytest.fixture
def session(db: None, sessions: Sessions) -> Iterator[Session]:
    """A session whose one transaction is rolled back: for everything that one consumer can see alone."""
    session = sessions.take(autocommit=False)
    yield session
    sessions.give_back(session)


@pytest.fixture
def connect(db: None, sessions: Sessions) -> Iterator[Connect]:
    """Gives sessions that commit: for what happens between consumers.  Afterwards the queue is emptied."""
    with ExitStack() as taken:

        def take(*, autocommit: bool = True) -> Session:
            session = sessions.take(autocommit=autocommit)
            taken.callback(sessions.give_back, session)
            return session

        yield take
    session = sessions.take(autocommit=True)
    for table in TABLES:  # far quicker than to truncate the partitions of the history
        session.rows(f"delete from {table}")
    sessions.give_back(session)
