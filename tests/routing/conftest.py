"""Workers, and a look at what they did."""

from tests.support.fixtures.consumers import consume, diary, effects, environment, rows, session, start

__all__ = ["consume", "diary", "effects", "environment", "rows", "session", "start"]
