"""Real workers."""

from tests.support.fixtures.workers import diary, environment, rows, session, start

__all__ = ["diary", "environment", "rows", "session", "start"]
