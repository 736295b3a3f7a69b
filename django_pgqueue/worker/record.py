"""Records outcomes: the one place that matches them."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from django_pgqueue import functions
from django_pgqueue.worker.outcome import Ended, Failed, Retry, Succeeded

if TYPE_CHECKING:
    from collections.abc import Iterable

logger = logging.getLogger("django_pgqueue.worker")


def record(connection: functions.Connection, ended: Iterable[Ended], *, worker: str) -> None:
    """Writes the ends of attempts, the successes in one statement.

    An attempt that is not ours any more is logged and left alone: who took it over records it.  So is one that is
    recorded twice because the answer to the first try never came.
    """
    successes = []
    for end in ended:
        match end.outcome:
            case Succeeded(result):
                successes.append(
                    functions.Success(end.message.id, end.message.attempt, result, end.started_at, end.finished_at)
                )
            case Retry() | Failed():
                _record_error(connection, end)
    if successes:
        ours = functions.message_complete(connection, successes, worker=worker)
        if len(ours) < len(successes):
            for success in successes:
                if success.id not in ours:
                    _log_lost(success.id, success.attempt)


def _record_error(connection: functions.Connection, end: Ended) -> None:
    ours: object
    match end.outcome:
        case Retry(error, wait_seconds):
            ours = functions.message_defer(
                connection,
                end.message,
                delay_ms=round(wait_seconds * 1000),
                error=error,
                started_at=end.started_at,
                finished_at=end.finished_at,
            )
        case Failed(error):
            ours = functions.message_fail(
                connection, end.message, error=error, started_at=end.started_at, finished_at=end.finished_at
            )
        case _:
            return
    if not ours:
        _log_lost(end.message.id, end.message.attempt)


def _log_lost(message_id: int, attempt: int) -> None:
    logger.warning(
        "lost id=%s attempt=%s: its lock ran out and it was taken over, or was ended by hand; no outcome is recorded",
        message_id,
        attempt,
    )
