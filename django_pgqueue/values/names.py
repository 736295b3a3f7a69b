"""Names of queues, channels, tasks, workers and keys."""

from __future__ import annotations

import re
from typing import Any, TypeGuard

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
    return is_text(value, max_bytes=MAX_NAME_BYTES) and value != "" and CONTROL_CHARACTER.search(value) is None


def are_names(value: object) -> bool:
    """Whether a value is a list of names.  A text would be read as a list of its letters.

    >>> are_names(["mail"]), are_names([]), are_names("mail")
    (True, True, False)
    """
    return isinstance(value, (list, tuple, set, frozenset)) and all(map(is_name, value))


def is_text(value: object, *, max_bytes: int) -> TypeGuard[str]:
    """Whether a value is a text that PostgreSQL can store, of at most so many bytes in UTF-8.

    >>> [is_text(value, max_bytes=2) for value in ("é", "éa", 7, "\\x00", "\\udcff")]
    [True, False, False, False, False]
    """
    try:
        return isinstance(value, str) and "\x00" not in value and len(value.encode()) <= max_bytes
    except UnicodeEncodeError:  # a lone surrogate
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
