"""A second connection to the test database, and what the tests look at."""

from tests.support.fixtures.backend import fresh_registry, stranger

__all__ = ["fresh_registry", "stranger"]
