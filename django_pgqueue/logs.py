"""Log lines that say which job they belong to, as JSON or with a filter for any other formatter.

    LOGGING = {"formatters": {"json": {"()": "django_pgqueue.logs.JsonFormatter"}}, ...}
    LOGGING = {"filters": {"job": {"()": "django_pgqueue.logs.JobFilter"}}, ...}

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

from django_pgqueue.functions import Error, running
from django_pgqueue.values.error import to_log

if TYPE_CHECKING:
    from django_pgqueue.functions import Received

logger = logging.getLogger("django_pgqueue.worker")

OURS = "django_pgqueue"
KNOWN = {*vars(logging.makeLogRecord({})), "message", "asctime", "taskName", "pgqueue"}
"""Attributes of records that are not from somebody's ``extra``."""
SURROGATE = re.compile(r"\\ud[89a-f]")
"""A half of a character beyond 16 bits, or one that stands alone, in ASCII."""
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


class job:  # noqa: N801 -- read as ``with job(message)``; a generator would cost a no-op task 3 % of its time
    """Names the job of the lines that are logged within, by this thread or coroutine and what it awaits."""

    __slots__ = ("_message", "_token")

    def __init__(self, message: Received) -> None:
        self._message = message

    def __enter__(self) -> None:
        self._token = running.set(self._message)

    def __exit__(self, *_: object) -> None:
        try:  # noqa: SIM105 -- and so would suppress()
            running.reset(self._token)
        except ValueError:  # a coroutine that was left unfinished is closed in another context
            pass


def job_of(record: logging.LogRecord | None = None) -> Received | None:
    """Returns the message whose attempt a line is about, or else the one whose task runs here."""
    facts = getattr(record, "pgqueue", None)
    message: Received | None = facts.end.message if facts is not None else running.get()
    return message


class JobFilter(logging.Filter):
    """Filter that gives each record ``message_id``, ``task``, ``attempt`` and ``queue``, which are None outside of a
    job, and all four as text in ``job``.  It lets every record pass.

    It belongs to a handler: the filters of a logger do not see what its children log.  A record keeps attributes that
    it has already.
    """

    def filter(self, record: logging.LogRecord) -> bool:
        message = job_of(record)
        if message is None:
            found: dict[str, Any] = {"message_id": None, "task": None, "attempt": None, "queue": None, "job": ""}
        else:
            found = {
                "message_id": message.id,
                "task": in_a_line(message.task),
                "attempt": message.attempt,
                "queue": in_a_line(message.queue),
            }
            found["job"] = "id={message_id} task={task} attempt={attempt} queue={queue}".format_map(found)
        for name, value in found.items():
            if name not in vars(record):
                setattr(record, name, value)
        return True


def without_failures(record: logging.LogRecord) -> bool:
    """Filter of Django's log in a worker, whose own line about a failed attempt has its traceback already."""
    message = running.get()
    about = record.args[0] if isinstance(record.args, tuple) and record.args else None
    return message is None or not record.exc_info or about != str(message.id)


class JsonFormatter(logging.Formatter):
    """Formatter that writes one JSON object a line: time, level, logger, message, and all other known fields.

    Of what the caller gives as ``extra`` it writes texts, numbers and booleans: an object's text may hold anything.
    """

    def format(self, record: logging.LogRecord) -> str:
        fields: dict[str, Any] = {
            "time": dt.datetime.fromtimestamp(record.created, dt.UTC).isoformat(timespec="milliseconds"),
            "level": record.levelname,
            "logger": record.name,
            "message": record.getMessage(),
        }
        if record.name.partition(".")[0] == OURS:
            fields |= fields_of(record)
        if (message := job_of(record)) is not None:
            about = {"id": message.id, "task": message.task, "attempt": message.attempt, "queue": message.queue}
            fields = {**about, **fields}
        if record.exc_info and record.exc_info[0] is not None and "traceback" not in fields:
            error = Error.of(record.exc_info[1])
            fields |= {"error_class": error.error_class, "traceback": (error.traceback or "").rstrip("\n")}
        fields.setdefault("trace_id", current_trace())
        fields = {**extra_of(record), "stack": record.stack_info, **fields}
        shown = {key: value for key, value in fields.items() if value is not None}
        line = json.dumps(shown, default=str)  # in ASCII: every stream takes it
        if SURROGATE.search(line):  # one that stands alone is not taken by every reader
            whole = json.dumps(shown, default=str, ensure_ascii=False).encode(errors="replace")
            line = json.dumps(json.loads(whole))
        return line


def extra_of(record: logging.LogRecord) -> dict[str, Any]:
    return {
        name: value
        for name, value in vars(record).items()
        if name not in KNOWN and isinstance(value, bool | int | float | str)
    }


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


def own_scope() -> None:
    """Keeps the tags and breadcrumbs of a job, where Sentry is in use, from the next one and from those beside it."""
    sentry = sys.modules.get("sentry_sdk")
    if sentry is not None:
        with suppress(Exception):
            sentry.Scope.set_isolation_scope(sentry.get_isolation_scope().fork())


def log_trouble(what: str, error: BaseException) -> None:
    """Logs an error of the project's code where it should not have raised.

    It never raises.  A handler of the project's LOGGING may raise, and so may the error when it is printed: neither may
    disturb a slot.
    """
    with suppress(BaseException):
        logger.error("%s", what, exc_info=to_log(error))
