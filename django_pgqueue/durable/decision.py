"""The decision of a person."""

from __future__ import annotations

import datetime as dt
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from django_pgqueue.values.times import as_django

if TYPE_CHECKING:
    from collections.abc import Mapping

PREFIX = "pgqueue:approval"


@dataclass(frozen=True, slots=True)
class Decision:
    """Decision of an approval.  It is true if it approves."""

    approved: bool
    by: str
    """Name of the user."""
    at: dt.datetime
    comment: str | None = None

    def __bool__(self) -> bool:
        return self.approved

    @classmethod
    def of(cls, payload: Mapping[str, Any]) -> Decision:
        at = as_django(dt.datetime.fromisoformat(payload["at"]))
        return cls(payload["approved"], payload["by"], at, payload["comment"])


def event_of(message_id: int, name: str) -> str:
    """Returns the event that ``pgqueue_approval_decide`` emits."""
    return f"{PREFIX}:{message_id}:{name}"
