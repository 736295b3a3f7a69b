"""Workers, and a look at what they did."""

from tests.support.fixtures.consumers import consume, diary, effects, environment, rows, session, start
from tests.support.fixtures.network import proxy

__all__ = ["consume", "diary", "effects", "environment", "proxy", "rows", "session", "start"]
