"""Wait for what must come true, never for a time."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable

SECONDS = 60.0
"""More than what comes true takes on a slow machine that runs other tests as well."""

T = TypeVar("T")


def wait_until(condition: Callable[[], T], what: str, seconds: float = SECONDS) -> T:
    """The first true answer of the condition."""
    deadline = time.monotonic() + seconds
    while not (answer := condition()):
        assert time.monotonic() < deadline, f"not within {seconds:g} seconds: {what}"
        time.sleep(0.02)
    return answer
