"""Real workers on the tests" database, and a look at what they did."""

from tests.support.fixtures.workers import diary, environment, rows, session, start

__all__ = ["diary", "environment", "rows", "session", "start"]
