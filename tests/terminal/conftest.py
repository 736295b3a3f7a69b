"""Commands that join the tests" database."""

from tests.support.fixtures.terminal import environment

__all__ = ["environment"]
