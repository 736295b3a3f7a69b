"""Writes each outcome with the SQL function for it."""

from __future__ import annotations

import logging
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Any

from django_pgqueue import functions
from django_pgqueue.logs import in_a_line
from django_pgqueue.tasks import retry
from django_pgqueue.values.times import from_microseconds
from django_pgqueue.worker.record.log import LoggedFacts
from django_pgqueue.worker.run.outcome import (
    Cancelled,
    Committed,
    Deferred,
    EndedAttempt,
    Failed,
    GivenBack,
    Retried,
    RolledBack,
    Succeeded,
    Suspended,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from typing import Self

logger = logging.getLogger("django_pgqueue.worker")

MAX_WAIT_SECONDS = 100 * 365 * 86_400.0
"""A task may ask for an infinite wait: that must not be an error in the thread that records."""


def at_once(tell: Callable[[], None]) -> None:
    tell()


@dataclass(frozen=True, slots=True)
class Successes:
    """Successes that one statement records, and its parameters."""

    ends: list[EndedAttempt]
    parameters: tuple[Any, ...]

    @classmethod
    def of(cls, ends: list[EndedAttempt], *, worker: str) -> Self:
        successes = [
            functions.Success(end.message.id, end.message.attempt, end.outcome.result, end.started_us, end.finished_us)
            for end in ends
            if isinstance(end.outcome, Succeeded)
        ]
        return cls(ends, functions.completion(successes, worker=worker))

    def record(self, connection: functions.Connection) -> dict[tuple[int, int], str]:
        """Returns "lost" for each attempt that was lost."""
        ours = functions.message_complete_prepared(connection, self.parameters)
        if len(ours) == len(self.ends):
            return {}
        lost = [(end.message.id, end.message.attempt) for end in self.ends if end.message.id not in ours]
        for message_id, attempt in lost:
            _log_lost(message_id, attempt)
        return dict.fromkeys(lost, "lost")


def record(
    connection: functions.Connection,
    ended: Iterable[EndedAttempt],
    *,
    worker: str,
    announce: Callable[[Callable[[], None]], None] = at_once,
) -> dict[tuple[int, int], str]:
    """Writes the ends of attempts, the successes in one statement, and so what is given back.

    An attempt that this worker has lost is logged and left alone: the worker that took it over records it.  So is one
    that is written twice because the answer to the first try never came.  ``announce`` gets the signal of each job that
    should have gone on, and has ended.  Returns, by (id, attempt), the recorded status of each attempt that did not end
    as its outcome says.
    """
    otherwise = {}
    successes = []
    ended = list(ended)
    unknown = [(end.message, end.outcome.error.message) for end in ended if isinstance(end.outcome, GivenBack)]
    if unknown:
        functions.message_park(connection, unknown, worker=worker)
    for end in ended:
        if isinstance(end.outcome, Succeeded):
            successes.append(end)
            continue
        status = _record_other(connection, end)
        if status != end.outcome.status:
            otherwise[end.message.id, end.message.attempt] = status or "lost"
        if status is None:
            _log_lost(end.message.id, end.message.attempt)
        elif end.tell is not None and status in ("failed", "cancelled"):
            announce(partial(_tell_end, end, status, end.tell))
    if successes:
        otherwise |= Successes.of(successes, worker=worker).record(connection)
    return otherwise


def _record_other(connection: functions.Connection, end: EndedAttempt) -> str | None:  # noqa: PLR0911 -- one for each
    """Returns the recorded status; None: the attempt was lost."""
    message = end.message
    times: dict[str, Any] = {
        "started_at": from_microseconds(end.started_us),
        "finished_at": from_microseconds(end.finished_us),
    }
    match end.outcome:
        case Retried(error, wait_seconds, state, last):
            delay_ms = _milliseconds(wait_seconds)
            return functions.message_defer(
                connection, message, delay_ms=delay_ms, state=state, error=error, max_attempts=last, **times
            )
        case Deferred(wait_seconds, state):
            delay_ms = _milliseconds(wait_seconds)
            return functions.message_defer(connection, message, delay_ms=delay_ms, state=state, **times)
        case Suspended(wait):
            return functions.message_suspend(connection, message, wait, **times)
        case RolledBack(error):
            # At once, and with the error: "its lock ran out" would not show the reason.
            return functions.message_defer(connection, message, error=error, max_attempts=retry.ASKED_ATTEMPTS, **times)
        case Failed(error):
            return "failed" if functions.message_fail(connection, message, error=error, **times) else None
        case Cancelled(error):
            return "cancelled" if functions.message_cancelled(connection, message, error=error, **times) else None
        case Committed() | Succeeded() | GivenBack():
            return end.outcome.status


def _milliseconds(seconds: float) -> int:
    return round(min(seconds, MAX_WAIT_SECONDS) * 1000)


def _log_lost(message_id: int, attempt: int) -> None:
    logger.warning(
        "lost id=%s attempt=%s: its lock ran out and another worker took it over, or a user ended it; no outcome is "
        "recorded",
        message_id,
        attempt,
    )


def _tell_end(end: EndedAttempt, status: str, tell: Callable[[], None]) -> None:
    why = "a user asked it to stop" if status == "cancelled" else "it has no attempts left"
    error, is_failure = getattr(end.outcome, "error", None), status == "failed"
    told = end if error is None or not is_failure else replace(end, outcome=Failed(error))
    logging.getLogger(end.logger).log(
        logging.ERROR if is_failure else logging.WARNING,
        "%s id=%s task=%s attempt=%s: the worker does not run it again, because %s",
        status, end.message.id, in_a_line(end.message.task), end.message.attempt, why,
        extra={"pgqueue": LoggedFacts(told, hidden=end.exception is None)},
        exc_info=end.exception if is_failure else None,
    )  # fmt: skip
    tell()
