"""Sessions for the tests of the SQL: plain psycopg, no Django between."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from psycopg import IsolationLevel

from tests.support.fixtures.sessions import Connect, connect, conninfo, session, sessions, test_database

if TYPE_CHECKING:
    from tests.support.sessions import Session

__all__ = ["connect", "conninfo", "session", "sessions", "test_database"]


@pytest.fixture(params=["REPEATABLE_READ", "SERIALIZABLE"])
def strict(request: pytest.FixtureRequest, connect: Connect) -> Session:
    """A session of transactions in which a row that others have changed since is an error."""
    session = connect(autocommit=False)
    session.connection.isolation_level = IsolationLevel[request.param]
    return session
