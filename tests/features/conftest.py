"""What the tests of the features share: the workers of tests.worker, one inside of this process, and a table."""

from tests.support.fixtures.consumers import consume, diary, effects, environment, rows, session, start

__all__ = ["consume", "diary", "effects", "environment", "rows", "session", "start"]
