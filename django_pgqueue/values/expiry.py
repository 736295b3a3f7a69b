"""The headers that keep ``expires``: the time until which a message is worth beginning."""

from __future__ import annotations

import datetime as dt
from typing import Any

from django_pgqueue.values import times

AT, AFTER = "expires_at", "expires_us"
"""Names of the headers: a time in ISO 8601, and microseconds from the enqueue on, by the database's clock."""


def headers_of(task: object) -> dict[str, Any]:
    """Returns the headers that keep the ``expires`` of a task."""
    expires = getattr(task, "expires", None)
    if expires is None:
        return {}
    if isinstance(expires, dt.timedelta):
        return {AFTER: expires // times.MICROSECOND}
    return {AT: times.aware(expires).isoformat()}
