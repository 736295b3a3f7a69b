"""Moved up, where all tests can wait."""

from tests.waiting import SECONDS, wait_until

__all__ = ["SECONDS", "wait_until"]
