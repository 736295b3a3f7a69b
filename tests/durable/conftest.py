"""Real workers, and tasks that know nothing of the test before."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.durable import tasks
from tests.support.fixtures.workers import diary, environment, rows, session, start

if TYPE_CHECKING:
    from collections.abc import Iterator

__all__ = ["diary", "environment", "rows", "session", "start"]


@pytest.fixture(autouse=True)
def _forget() -> Iterator[None]:
    yield
    tasks.calls.clear()
    tasks.CODE.clear()
