"""Sessions, as the tests of the SQL have them."""

from tests.support.fixtures.sessions import connect, conninfo, session, sessions, test_database

__all__ = ["connect", "conninfo", "session", "sessions", "test_database"]
