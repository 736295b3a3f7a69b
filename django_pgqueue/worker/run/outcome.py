"""Outcomes of an attempt, as values."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

if TYPE_CHECKING:
    from collections.abc import Callable

    from django_pgqueue.functions import Error, Received, Wait


@dataclass(frozen=True, slots=True)
class Succeeded:
    status: ClassVar[str] = "succeeded"
    result: str | None
    """What the task returned, as JSON; None stands for None."""


WITHOUT_RESULT = Succeeded(None)


@dataclass(frozen=True, slots=True)
class Committed:
    """Succeeded, and recorded in the transaction of the atomic task itself: there is nothing left to write."""

    status: ClassVar[str] = "succeeded"


@dataclass(frozen=True, slots=True)
class Retried:
    status: ClassVar[str] = "retried"
    error: Error
    wait_seconds: float
    state: str | None = None
    max_attempts: int = 1
    """The limit for a message that has no max_attempts of its own."""


@dataclass(frozen=True, slots=True)
class Deferred:
    status: ClassVar[str] = "deferred"
    wait_seconds: float
    state: str | None


@dataclass(frozen=True, slots=True)
class Suspended:
    """A durable task waits."""

    status: ClassVar[str] = "suspended"
    wait: Wait


@dataclass(frozen=True, slots=True)
class Failed:
    status: ClassVar[str] = "failed"
    error: Error


@dataclass(frozen=True, slots=True)
class GivenBack:
    """Not begun, because this worker does not know the task, or the arguments do not fit: others may."""

    status: ClassVar[str] = "parked"
    error: Error


@dataclass(frozen=True, slots=True)
class Cancelled:
    status: ClassVar[str] = "cancelled"
    error: Error


@dataclass(frozen=True, slots=True)
class RolledBack:
    """The end of an atomic task whose transaction went down with its connection, or whose lock was lost: nothing has
    happened, so it may run again at once.  Also of a durable task whose lock was lost when it recorded a step.
    """

    status: ClassVar[str] = "retried"
    error: Error


Outcome = Succeeded | Committed | Retried | Deferred | Failed | Cancelled | RolledBack | GivenBack | Suspended


@dataclass(slots=True)
class EndedAttempt:
    """An attempt that is over but not yet recorded.  Nobody changes it; to freeze it would cost each job half a
    microsecond.
    """

    message: Received
    outcome: Outcome
    started_us: int
    """Microseconds since 1970, by the database's clock."""
    finished_us: int
    tell: Callable[[], None] | None = None
    """Sends the signal that the job has finished, if what is recorded turns out to be its end."""
    trace_id: str | None = None
    exception: BaseException | None = None
    """What failed, for the log.  None: nothing did, or the task is sensitive."""
    logger: str = "django_pgqueue.worker"

    @property
    def run_ms(self) -> float:
        return (self.finished_us - self.started_us) / 1000
