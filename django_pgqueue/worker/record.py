"""Records outcomes: the one place that matches them."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any

from django_pgqueue import functions
from django_pgqueue.worker.outcome import (
    Abandoned,
    Cancelled,
    Committed,
    Deferred,
    Ended,
    Failed,
    Retry,
    Succeeded,
)

if TYPE_CHECKING:
    from collections.abc import Iterable

logger = logging.getLogger("django_pgqueue.worker")

LONGEST_WAIT_SECONDS = 100 * 365 * 86_400.0
"""Who waits for infinity, waits: it must not be an error in the worker's thread that records."""


def record(connection: functions.Connection, ended: Iterable[Ended], *, worker: str) -> None:
    """Writes the ends of attempts, the successes in one statement.

    An attempt that is not ours any more is logged and left alone: who took it over records it.  So is one that is
    recorded twice because the answer to the first try never came.
    """
    successes = []
    for end in ended:
        if isinstance(end.outcome, Succeeded):
            successes.append(
                functions.Success(
                    end.message.id, end.message.attempt, end.outcome.result, end.started_at, end.finished_at
                )
            )
        elif not _record_other(connection, end):
            _log_lost(end.message.id, end.message.attempt)
    if successes:
        ours = functions.message_complete(connection, successes, worker=worker)
        if len(ours) < len(successes):
            for success in successes:
                if success.id not in ours:
                    _log_lost(success.id, success.attempt)


def _record_other(connection: functions.Connection, end: Ended) -> bool:
    """False: the attempt was lost."""
    message = end.message
    times: dict[str, Any] = {"started_at": end.started_at, "finished_at": end.finished_at}
    match end.outcome:
        case Retry(error, wait_seconds, state, last):
            delay_ms = _milliseconds(wait_seconds)
            status = functions.message_defer(
                connection, message, delay_ms=delay_ms, state=state, error=error, max_attempts=last, **times
            )
            return status is not None
        case Deferred(wait_seconds, state):
            delay_ms = _milliseconds(wait_seconds)
            return functions.message_defer(connection, message, delay_ms=delay_ms, state=state, **times) is not None
        case Failed(error):
            return functions.message_fail(connection, message, error=error, **times)
        case Cancelled(error):
            return functions.message_cancelled(connection, message, error=error, **times)
        case Abandoned():
            # Its lock ends now: whoever dequeues next finds it, and records the attempt as lost.
            return bool(functions.message_heartbeat(connection, [message], worker=message.worker, lock_ms=0))
        case Committed() | Succeeded():
            return True


def _milliseconds(seconds: float) -> int:
    return round(min(seconds, LONGEST_WAIT_SECONDS) * 1000)


def _log_lost(message_id: int, attempt: int) -> None:
    logger.warning(
        "lost id=%s attempt=%s: its lock ran out and it was taken over, or was ended by hand; no outcome is recorded",
        message_id,
        attempt,
    )
