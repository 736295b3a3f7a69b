"""Log lines as JSON, for programs that collect them.

    LOGGING = {"formatters": {"json": {"()": "django_pgqueue.logs.JsonFormatter"}}, ...}

or ``qworker --log-format json``.  The plain lines are ``event key=value``.  The formatter makes a field of each key and
adds what else is known about the attempt.  No line has the content of a message.
"""

from __future__ import annotations

import datetime as dt
import json
import logging
import re
import sys
from contextlib import suppress
from functools import cache
from typing import TYPE_CHECKING, Any

from django_pgqueue.functions import Error
from django_pgqueue.tasks import sensitive
from django_pgqueue.values.error import to_log

if TYPE_CHECKING:
    from django_pgqueue.conf import Options


logger = logging.getLogger("django_pgqueue.worker")

OURS = "django_pgqueue"
PLACEHOLDER = re.compile(r"(?:(\w+)=)?%(?:[-#0 +]*\d*(?:\.\d+)?[a-zA-Z]|%)")


def in_a_line(text: str | None, longest: int = 300) -> str | None:
    r"""Text of a row for a log line: shortened, and without characters that begin a new line or control a terminal.

    >>> in_a_line("shop.tasks.pay\nERROR all is lost \x1b[31m")
    'shop.tasks.pay\\nERROR all is lost \\x1b[31m'
    """
    if text is None or (len(text) <= longest and text.isprintable()):
        return text
    shown = "".join(
        each if each.isprintable() else each.encode("unicode_escape", "replace").decode() for each in text[:longest]
    )
    return shown if len(text) <= longest else shown + "..."


class WithoutSensitiveErrors(logging.Filter):
    """Filter that takes the traceback of a sensitive task out of the line that Django logs for each failed task."""

    def __init__(self, settings: Options) -> None:
        super().__init__()
        self.settings = settings

    def filter(self, record: logging.LogRecord) -> bool:
        path = record.args[1] if isinstance(record.args, tuple) and len(record.args) > 1 else None
        if record.exc_info and isinstance(path, str) and sensitive.hides_message(path, self.settings):
            record.exc_info = record.exc_text = None
        return True


class JsonFormatter(logging.Formatter):
    """Formatter that writes one JSON object a line: time, level, logger, message, and all other known fields."""

    def format(self, record: logging.LogRecord) -> str:
        message = record.getMessage()
        fields: dict[str, Any] = {
            "time": dt.datetime.fromtimestamp(record.created, dt.UTC).isoformat(timespec="milliseconds"),
            "level": record.levelname,
            "logger": record.name,
            "message": message,
        }
        if record.name.partition(".")[0] == OURS:
            fields |= fields_of(record)
        if record.exc_info and record.exc_info[0] is not None:
            error = Error.of(record.exc_info[1])
            fields |= {"error_class": error.error_class, "traceback": (error.traceback or "").rstrip("\n")}
        fields.setdefault("trace_id", current_trace())
        shown = {key: value for key, value in fields.items() if value is not None}
        return json.dumps(shown, ensure_ascii=False, default=str)


def fields_of(record: logging.LogRecord) -> dict[str, Any]:
    """Returns the fields of a log line of this package."""
    facts = getattr(record, "pgqueue", None)
    event, keys = keys_of(str(record.msg))
    found: dict[str, Any] = {"event": event} if event else {}
    if isinstance(record.args, tuple):
        found |= {key: plain(value) for key, value in zip(keys, record.args, strict=False) if key is not None}
    return found | getattr(facts, "fields", {})


@cache
def keys_of(template: str) -> tuple[str, list[str | None]]:
    """Returns the text before the first key, and the key of each placeholder (None: the placeholder has no key).

    >>> keys_of("retried id=%s in_seconds=%.1f error=%s: %s")
    ('retried', ['id', 'in_seconds', 'error', None])
    """
    found = [match for match in PLACEHOLDER.finditer(template) if match[0] != "%%"]
    named = [match for match in found if match[1]]
    event = template[: named[0].start()].strip() if named else ""
    return event, [match[1] for match in found]


def plain(value: Any) -> Any:
    if isinstance(value, float):
        return round(value, 3)
    return value if value is None or isinstance(value, bool | int | str) else str(value)


def current_trace() -> str | None:
    """Returns the trace id of the current span.  None: OpenTelemetry is not in use, or no span is current."""
    opentelemetry = sys.modules.get("opentelemetry.trace")
    if opentelemetry is None:
        return None
    context = opentelemetry.get_current_span().get_span_context()
    return f"{context.trace_id:032x}" if context.is_valid else None


def log_trouble(what: str, error: BaseException) -> None:
    """Logs an error of the project's code where it should not have raised.

    It never raises.  A handler of the project's LOGGING may raise, and so may the error when it is printed: neither may
    disturb a slot.
    """
    with suppress(BaseException):
        logger.error("%s", what, exc_info=to_log(error))
