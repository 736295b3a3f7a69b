"""Names of queues, channels, tasks, workers and keys."""

from __future__ import annotations

import re
from typing import Any

from django_pgqueue.exceptions import InvalidMessage
from django_pgqueue.values import limits
from django_pgqueue.values.limits import MAX_NAME_BYTES
from django_pgqueue.values.redaction import quote

CONTROL_CHARACTER = re.compile(limits.CONTROL_CHARACTER)
NAMES_ARE = f"names are text of 1 to {MAX_NAME_BYTES} bytes in UTF-8, without control characters"


def is_name(value: object) -> bool:
    """Whether a value can be the name of a queue, a channel and so on.  The tables have the same limits: with them,
    names fit into an index, a notification and a log line.

    >>> is_name("mail"), is_name("")
    (True, False)
    """
    return (
        isinstance(value, str)
        and 0 < len(value) <= MAX_NAME_BYTES
        and CONTROL_CHARACTER.search(value) is None
        and _fits(value)
    )


def are_names(value: object) -> bool:
    """Whether a value is a list of names.  A text would be read as a list of its letters.

    >>> are_names(["mail"]), are_names([]), are_names("mail")
    (True, True, False)
    """
    return isinstance(value, (list, tuple, set, frozenset)) and all(map(is_name, value))


def _fits(value: str) -> bool:
    try:
        return value.isascii() or len(value.encode()) <= MAX_NAME_BYTES
    except UnicodeEncodeError:
        return False


def is_text(value: str) -> bool:
    """Whether PostgreSQL can store the characters of a text.

    >>> is_text("é"), is_text("\\x00"), is_text("\\udcff")
    (True, False, False)
    """
    try:
        return "\x00" not in value and value.encode() is not None
    except UnicodeEncodeError:
        return False


def name_of(what: str, name: Any, error: type[Exception] = InvalidMessage) -> str:
    """Returns ``name``, or raises ``error`` if it cannot be the name of a ``what``.

    >>> name_of("queue", "mail")
    'mail'
    """
    if not is_name(name):
        article = "an" if what[0] in "aeiou" else "a"
        message = f"{quote(name)} cannot be the name of {article} {what}: {NAMES_ARE}."
        raise error(message)
    return str(name)
