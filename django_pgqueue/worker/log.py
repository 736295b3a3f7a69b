"""The line that a worker logs of each attempt."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from django_pgqueue.worker.outcome import Abandoned, Cancelled, Committed, Deferred, Failed, Retry, Succeeded

if TYPE_CHECKING:
    from django_pgqueue.worker.outcome import Ended

logger = logging.getLogger("django_pgqueue.worker")


def log_end(end: Ended) -> None:
    if isinstance(end.outcome, (Succeeded, Committed)) and not logger.isEnabledFor(logging.INFO):
        return
    message, run_ms = end.message, (end.finished_at - end.started_at).total_seconds() * 1000
    match end.outcome:
        case Succeeded() | Committed():
            logger.info("succeeded id=%s task=%s attempt=%s ms=%.1f", message.id, message.task, message.attempt, run_ms)
        case Deferred(wait_seconds):
            logger.info(
                "deferred id=%s task=%s attempt=%s ms=%.1f in_seconds=%.1f",
                message.id, message.task, message.attempt, run_ms, wait_seconds,
            )  # fmt: skip
        case Cancelled():
            logger.warning(
                "cancelled id=%s task=%s attempt=%s ms=%.1f", message.id, message.task, message.attempt, run_ms
            )
        case Abandoned(error):
            logger.warning(
                "rolled back id=%s task=%s attempt=%s ms=%.1f error=%s: %s",
                message.id, message.task, message.attempt, run_ms, error.error_class, _in_one_line(error.message),
            )  # fmt: skip
        case Retry(error, wait_seconds):
            logger.warning(
                "retried id=%s task=%s attempt=%s ms=%.1f in_seconds=%.1f error=%s: %s",
                message.id, message.task, message.attempt, run_ms, wait_seconds,
                error.error_class, _in_one_line(error.message),
            )  # fmt: skip
        case Failed(error):
            logger.error(
                "failed id=%s task=%s attempt=%s ms=%.1f error=%s: %s",
                message.id, message.task, message.attempt, run_ms, error.error_class, _in_one_line(error.message),
            )  # fmt: skip


def _in_one_line(text: str) -> str:
    return " ".join(text.split())
