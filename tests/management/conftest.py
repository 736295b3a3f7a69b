"""The environment of a process that joins the tests' database, and the clock of the queue."""

from tests.support.fixtures.admin import clock, noon
from tests.support.fixtures.workers import diary, environment

__all__ = ["clock", "diary", "environment", "noon"]
