"""How an attempt ended: values, matched once where they are recorded."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import datetime as dt

    from django_pgqueue.functions import Error, Received


@dataclass(frozen=True, slots=True)
class Succeeded:
    result: str | None
    """What the task returned, as JSON; None stands for None."""


@dataclass(frozen=True, slots=True)
class Retry:
    error: Error
    wait_seconds: float


@dataclass(frozen=True, slots=True)
class Failed:
    error: Error


Outcome = Succeeded | Retry | Failed


@dataclass(frozen=True, slots=True)
class Ended:
    """An attempt that is over but not yet recorded."""

    message: Received
    outcome: Outcome
    started_at: dt.datetime
    finished_at: dt.datetime
