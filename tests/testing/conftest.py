"""Somebody else's connection."""

from tests.support.fixtures.backend import stranger

__all__ = ["stranger"]
