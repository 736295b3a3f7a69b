"""Workers, one inside of this process, and a registry without tasks."""

from tests.support.fixtures.backend import fresh_registry, stranger
from tests.support.fixtures.consumers import consume, diary, effects, environment, rows, session, start

__all__ = ["consume", "diary", "effects", "environment", "fresh_registry", "rows", "session", "start", "stranger"]
