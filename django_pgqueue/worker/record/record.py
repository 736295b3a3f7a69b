"""Writes each outcome with the SQL function for it."""

from __future__ import annotations

import logging
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any

from django_pgqueue import functions
from django_pgqueue.logs import in_a_line
from django_pgqueue.tasks import retry
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

logger = logging.getLogger("django_pgqueue.worker")

MAX_WAIT_SECONDS = 100 * 365 * 86_400.0
"""A task may ask for an infinite wait: that must not be an error in the thread that records."""


def at_once(tell: Callable[[], None]) -> None:
    tell()


def record(
    connection: functions.Connection,
    ended: Iterable[EndedAttempt],
    *,
    worker: str,
    announce: Callable[[Callable[[], None]], None] = at_once,
    parameters: tuple[Any, ...] | None = None,
) -> dict[tuple[int, int], str]:
    """Writes the ends of attempts, the successes in one statement, and so what is given back.

    An attempt that this worker has lost is logged and left alone: the worker that took it over records it.  So is one
    that is written twice because the answer to the first try never came.  ``announce`` gets the signal of each job that
    should have gone on, and has ended.  ``parameters``: those of ``prepared``, if all are successes.  Returns, by (id, attempt), the recorded status of each attempt that did not end
    as its outcome says.
    """
    ended = list(ended)
    if parameters is not None:
        return dict.fromkeys(_record_successes(connection, ended, parameters), "lost")
    otherwise = {}
    successes = []
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
        parameters = prepared(successes, worker=worker)
        otherwise |= dict.fromkeys(_record_successes(connection, successes, parameters), "lost")
    return otherwise


def prepared(successes: Iterable[EndedAttempt], *, worker: str) -> tuple[Any, ...]:
    """Returns the parameters of the statement that records successes."""
    return functions.completion(
        [
            functions.Success(end.message.id, end.message.attempt, end.outcome.result, end.started_at, end.finished_at)
            for end in successes
        ],
        worker=worker,
    )


def _record_successes(
    connection: functions.Connection, successes: list[EndedAttempt], parameters: tuple[Any, ...]
) -> list[tuple[int, int]]:
    """Returns the attempts that were lost."""
    ours = functions.message_complete_prepared(connection, parameters)
    if len(ours) == len(successes):
        return []
    lost = [(end.message.id, end.message.attempt) for end in successes if end.message.id not in ours]
    for message_id, attempt in lost:
        _log_lost(message_id, attempt)
    return lost


def _record_other(connection: functions.Connection, end: EndedAttempt) -> str | None:  # noqa: PLR0911 -- one for each
    """Returns the recorded status; None: the attempt was lost."""
    message = end.message
    times: dict[str, Any] = {"started_at": end.started_at, "finished_at": end.finished_at}
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
