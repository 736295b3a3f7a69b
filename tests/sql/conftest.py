"""Sessions for the tests of the SQL: plain psycopg, no Django between."""

from tests.support.fixtures.sessions import connect, conninfo, session, sessions, test_database

__all__ = ["connect", "conninfo", "session", "sessions", "test_database"]
