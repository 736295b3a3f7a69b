"""Fixtures of example."""

from tests.support.fixtures.example import mailers

__all__ = ["mailers"]
