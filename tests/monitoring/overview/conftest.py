"""A clock that stands at noon."""

from __future__ import annotations

from tests.support.fixtures.admin import clock, noon

__all__ = ["clock", "noon"]
