"""A registry without tasks, and somebody else's connection."""

from tests.support.fixtures.backend import fresh_registry, stranger

__all__ = ["fresh_registry", "stranger"]
