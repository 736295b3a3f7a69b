"""The line that a worker logs for each attempt."""

from __future__ import annotations

import json
import logging
import time
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from django_pgqueue.exceptions import TaskExpired
from django_pgqueue.logs import in_a_line
from django_pgqueue.tasks import sensitive
from django_pgqueue.tasks.sensitive import HIDDEN
from django_pgqueue.values.error import bounded, path_of
from django_pgqueue.worker.record.lines import WRITE_EVERY_SECONDS, LineHandler, line_handler
from django_pgqueue.worker.run.outcome import (
    Cancelled,
    Committed,
    Deferred,
    Failed,
    GivenBack,
    Retried,
    RolledBack,
    Succeeded,
    Suspended,
)

if TYPE_CHECKING:
    from collections.abc import ItemsView, Iterator

    from django_pgqueue.conf import Options
    from django_pgqueue.functions import Error
    from django_pgqueue.worker.run.outcome import EndedAttempt

logger = logging.getLogger("django_pgqueue.worker")

EXPIRED = path_of(TaskExpired)

MAX_LINE_CHARS = 2_000
"""The length of an error's message in a log line.  The whole of it stands in the history."""


class LoggedFacts(Mapping[str, Any]):
    """The data of a log line about an attempt.  Other formatters find it in the record: all that it shows is safe.

    Handlers that send records elsewhere, as OpenTelemetry's, take a mapping, and warn of each other object.
    """

    __slots__ = ("end", "hidden")

    def __init__(self, end: EndedAttempt, *, hidden: bool) -> None:
        self.end = end
        self.hidden = hidden

    def __str__(self) -> str:
        return json.dumps(self.fields, default=str)

    __repr__ = __str__

    def __getitem__(self, name: str) -> Any:
        return self.fields[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self.fields)

    def __len__(self) -> int:
        return len(self.fields)

    def items(self) -> ItemsView[str, Any]:
        return self.fields.items()

    @property
    def fields(self) -> dict[str, Any]:
        end, message = self.end, self.end.message
        due = max(message.dequeue_at / 1000, message.created_at.timestamp())
        error: Error | None = getattr(end.outcome, "error", None)
        found = {
            "status": end.outcome.status,
            "id": message.id,
            "task": message.task,
            "queue": message.queue,
            "channel": message.channel,
            "priority": message.priority,
            "attempt": message.attempt,
            "max_attempts": message.max_attempts,
            "worker": message.worker,
            "ms": round(end.run_ms, 3),
            "wait_ms": round(max(0.0, end.started_us / 1e6 - due) * 1000, 3),
            "trace_id": end.trace_id,
        }
        if error is not None:
            found |= {
                "error_class": error.error_class,
                "error_message": HIDDEN if self.hidden else error.message,
                "traceback": None if self.hidden else error.traceback,
            }
        return {key: value for key, value in found.items() if value is not None}


class EndLog:
    """Logs the ended attempts of a process.  Called by its slots."""

    def __init__(self, settings: Options) -> None:
        self.settings = settings
        self._lines: LineHandler | None = None
        self._ask_at = 0.0

    def __call__(self, end: EndedAttempt) -> None:
        if (now := time.monotonic()) >= self._ask_at:  # a project may change its handlers at any time
            self._lines, self._ask_at = line_handler(logger), now + WRITE_EVERY_SECONDS
        if self._lines is not None and isinstance(end.outcome, (Succeeded, Committed)):
            self._lines.succeeded(end)
        else:
            log_end(end, self.settings)
        if isinstance(end.outcome, Failed):  # a retry may turn out to be the end
            end.exception = None


def log_end(end: EndedAttempt, settings: Options) -> None:
    """Logs an ended attempt.  The error text of a sensitive task stands in the history, and in no log."""
    is_well = isinstance(end.outcome, (Succeeded, Committed))
    if isinstance(end.outcome, GivenBack) or (is_well and not logger.isEnabledFor(logging.INFO)):
        return  # what is given back has one line for each task, and not for each message
    hidden = not is_well and sensitive.hides_error(end.message.task, settings)
    about = {"pgqueue": LoggedFacts(end, hidden=hidden)}
    message, task, run_ms = end.message, in_a_line(end.message.task), end.run_ms
    match end.outcome:
        case Succeeded() | Committed():
            logger.info(
                "succeeded id=%s task=%s attempt=%s ms=%.1f", message.id, task, message.attempt, run_ms,
                extra=about,
            )  # fmt: skip
        case Deferred() | Suspended():
            logger.info(
                "%s id=%s task=%s attempt=%s ms=%.1f %s",
                end.outcome.status, message.id, task, message.attempt, run_ms, _wait_of(end.outcome),
                extra=about,
            )  # fmt: skip
        case Cancelled(error):
            logger.warning(
                "expired id=%s task=%s attempt=%s ms=%.1f"
                if error.error_class == EXPIRED
                else "cancelled id=%s task=%s attempt=%s ms=%.1f",
                message.id, task, message.attempt, run_ms,
                extra=about,
            )  # fmt: skip
        case RolledBack(error):
            logging.getLogger(end.logger).warning(
                "rolled back id=%s task=%s attempt=%s ms=%.1f error=%s: %s",
                message.id, task, message.attempt, run_ms,
                in_a_line(error.error_class), _in_one_line(error.message, hidden=hidden),
                extra=about,
            )  # fmt: skip
        case Retried(error, wait_seconds):
            logging.getLogger(end.logger).warning(
                "retried id=%s task=%s attempt=%s ms=%.1f in_seconds=%.1f error=%s: %s",
                message.id, task, message.attempt, run_ms, wait_seconds,
                in_a_line(error.error_class), _in_one_line(error.message, hidden=hidden),
                extra=about,
            )  # fmt: skip
        case Failed(error):
            logging.getLogger(end.logger).error(
                "failed id=%s task=%s attempt=%s ms=%.1f error=%s: %s",
                message.id, task, message.attempt, run_ms,
                in_a_line(error.error_class), _in_one_line(error.message, hidden=hidden),
                extra=about, exc_info=end.exception,
            )  # fmt: skip


def _wait_of(outcome: Deferred | Suspended) -> str:
    if isinstance(outcome, Deferred):
        return f"in_seconds={outcome.wait_seconds:.1f}"
    return f"waits_for={in_a_line(outcome.wait.name or 'its children')}"


def _in_one_line(text: str, *, hidden: bool) -> str:
    return HIDDEN if hidden else str(in_a_line(bounded(" ".join(text.split()), MAX_LINE_CHARS), 2 * MAX_LINE_CHARS))
