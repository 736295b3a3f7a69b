"""Checks names, routing keys and patterns before any SQL."""

from __future__ import annotations

import re

from django_pgqueue.exceptions import InvalidMessage, InvalidPattern
from django_pgqueue.values import names

MAX_BYTES = 255
BACK_REFERENCE = re.compile(r"\\[1-9]")


def checked_name(name: str) -> str:
    """Checks and returns the name of an exchange."""
    return names.name_of("exchange", name)


def checked_key(routing_key: str) -> str:
    if not names.is_text(routing_key, max_bytes=MAX_BYTES):
        message = f"{routing_key!r} cannot be a routing key: it is a text of at most {MAX_BYTES} bytes, without NUL."
        raise InvalidMessage(message)
    return routing_key


def checked_pattern(pattern: str, *, regex: bool) -> str:
    """Checks what can be checked without PostgreSQL, which has the last word on regular expressions."""
    if not names.is_text(pattern, max_bytes=MAX_BYTES):
        message = f"{pattern!r} cannot be a pattern: it is a text of at most {MAX_BYTES} bytes, without NUL."
        raise InvalidPattern(message)
    if regex and BACK_REFERENCE.search(pattern.replace(r"\\", "")):
        message = (
            f"The regular expression {pattern!r} has a back-reference, which could take for ever to match. Write "
            "it without one."
        )
        raise InvalidPattern(message)
    for word in () if regex else pattern.split("."):
        if ("*" in word or "#" in word) and word not in ("*", "#"):
            message = (
                f"The topic {pattern!r} has the word {word!r}: * and # match whole words between dots. For parts of "
                "words, use a regular expression (regex=True)."
            )
            raise InvalidPattern(message)
    return pattern
