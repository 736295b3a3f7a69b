"""What may be stored as JSON, checked in Python before any SQL.

PostgreSQL refuses some of what ``json.dumps`` writes (NaN, NUL, lone surrogates), and a refused statement breaks the
caller's transaction; other things change on the way (keys that are not text).  Both are errors here, which name the
place and the value, and nothing is lost.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any

from django_pgqueue.exceptions import ContentTooLarge, InvalidContent, InvalidMessage

NEXT_STEP = (
    "Pass text, numbers, booleans, None, lists and dictionaries with text keys; a primary key instead of an object."
)
EXACT_FLOATS_END = 2.0**53
MAX_NAME_BYTES = 255
CONTROL_CHARACTER = re.compile(r"[\x00-\x1f\x7f]")
NAMES_ARE = f"names are text of 1 to {MAX_NAME_BYTES} bytes in UTF-8, without control characters"
_hides: ContextVar[bool] = ContextVar("pgqueue_hides", default=False)
ENCODER = json.JSONEncoder(ensure_ascii=False, separators=(",", ":"), check_circular=False)


def encode(value: Any, *, max_bytes: int, what: str = "content") -> str:
    """``value`` as JSON text that a jsonb column takes and gives back equal.

    >>> encode({"args": [1, "é"], "kwargs": {}}, max_bytes=100)
    '{"args":[1,"é"],"kwargs":{}}'
    """
    return dump(normalize(value, what), max_bytes=max_bytes, what=what)


def dump(normal: Any, *, max_bytes: int, what: str = "content") -> str:
    """JSON text of a value that ``normalize`` has been through."""
    try:
        text = ENCODER.encode(normal)
    except ValueError as error:  # an integer of more than 4 300 digits
        message = f"{what} can not be stored as JSON: {error}."
        raise InvalidContent(message) from error
    size = len(text) if text.isascii() else len(text.encode())
    if size > max_bytes:
        message = (
            f"{what} has {size:,} bytes as JSON and may have {max_bytes:,}. "
            "Store the data where it belongs and pass its key, or raise MAX_CONTENT_BYTES in the backend's OPTIONS."
        )
        raise ContentTooLarge(message)
    return text


def normalize(value: Any, what: str = "content") -> Any:
    """``value`` in the types that JSON has: tuples become lists, bytes become text, as in django.tasks.

    >>> normalize({"sizes": (1, 2)})
    {'sizes': [1, 2]}
    """
    try:
        return _plain(value)
    except (Unusual, RecursionError, UnicodeEncodeError):
        return _looked_at(value, what)


def _looked_at(value: Any, what: str) -> Any:
    try:
        return _normalize(value, what)
    except RecursionError:
        message = f"{what} is nested too deeply, or contains itself. {NEXT_STEP}"
        raise InvalidContent(message) from None


class Unusual(Exception):
    """A value that deserves a second look."""


def _plain(value: Any) -> Any:
    """Most values are what they seem to be, and need no words for where they are."""
    kind = type(value)
    if kind is str:
        return _plain_text(value)
    if value is None or kind is int or kind is bool:
        return value
    if kind is dict:
        if any(type(key) is not str for key in value):
            raise Unusual
        return {_plain_text(key): _plain(item) for key, item in value.items()}
    if kind is list or kind is tuple:
        return [_plain(item) for item in value]
    if kind is float and -EXACT_FLOATS_END < value < EXACT_FLOATS_END:
        return value
    raise Unusual


def _plain_text(value: str) -> str:
    if "\x00" in value:
        raise Unusual
    if not value.isascii():
        value.encode()
    return value


def _normalize(value: Any, where: str) -> Any:
    match value:
        case str():
            return _text(value, where)
        case None | bool() | int():
            return value
        case float():
            return _number(value, where)
        case bytes():
            return _decoded(value, where)
        case Mapping():
            return {_key(key, where): _normalize(item, f"{where}[{key!r}]") for key, item in value.items()}
        case Sequence():
            return [_normalize(item, f"{where}[{position}]") for position, item in enumerate(value)]
        case _:
            message = f"{where} is {shown(value)}. Unsupported type: {type(value).__qualname__}. {NEXT_STEP}"
            raise InvalidContent(message)


def is_name(value: object) -> bool:
    """Whether a queue, a channel or anything else that has a name may be called so.  The tables have the same limits:
    names fit into an index, a notification and a line of a log.

    >>> is_name("mail"), is_name("")
    (True, False)
    """
    return (
        isinstance(value, str)
        and 0 < len(value) <= MAX_NAME_BYTES
        and CONTROL_CHARACTER.search(value) is None
        and _fits(value)
    )


def _fits(value: str) -> bool:
    try:
        return value.isascii() or len(value.encode()) <= MAX_NAME_BYTES
    except UnicodeEncodeError:
        return False


def is_text(value: str) -> bool:
    """Whether PostgreSQL has characters for it.

    >>> is_text("é"), is_text("\\x00"), is_text("\\udcff")
    (True, False, False)
    """
    try:
        return "\x00" not in value and value.encode() is not None
    except UnicodeEncodeError:
        return False


def name_of(what: str, name: Any, error: type[Exception] = InvalidMessage) -> str:
    """``name``, if ``what`` may be called so.

    >>> name_of("queue", "mail")
    'mail'
    """
    if not is_name(name):
        message = f"{shown(name)} cannot be the name of a {what}: {NAMES_ARE}."
        raise error(message)
    return str(name)


def _text(value: str, where: str) -> str:
    if "\x00" in value:
        message = (
            f"{where} contains the character NUL, which PostgreSQL can not store: {shown(value)}. Remove it first."
        )
        raise InvalidContent(message)
    if not value.isascii():
        try:
            value.encode()
        except UnicodeEncodeError as error:
            message = f"{where} is not valid Unicode ({error.reason}): {shown(value)}. Decode it with errors='replace'."
            raise InvalidContent(message) from error
    return value


def _number(value: float, where: str) -> float | int:
    if not math.isfinite(value):
        message = f"{where} is {value!r}, which JSON has no word for. Use None or a text instead."
        raise InvalidContent(message)
    # jsonb writes 1e23 as 100000000000000000000000, which is not the nearest integer to that float; this one is.
    return int(value) if abs(value) >= EXACT_FLOATS_END else value


def _decoded(value: bytes, where: str) -> str:
    try:
        return _text(value.decode(), where)
    except UnicodeDecodeError as error:
        message = f"{where} is bytes that are not UTF-8: {shown(value)}. Encode them first, for example with base64."
        raise InvalidContent(message) from error


def _key(key: Any, where: str) -> str:
    if not isinstance(key, str):
        message = f"{where} has the key {shown(key)}, which would come back as text. Use text keys."
        raise InvalidContent(message)
    return _text(key, f"the key {shown(key)} of {where}")


@contextmanager
def unshown(hide: bool = True) -> Iterator[None]:
    """Errors that are raised inside do not quote values: they are sensitive."""
    before = _hides.set(hide)
    try:
        yield
    finally:
        _hides.reset(before)


def hides() -> bool:
    """Whether values may not be quoted here."""
    return _hides.get()


def shown(value: Any) -> str:
    """A value, as an error quotes it."""
    if _hides.get():
        return f"a {type(value).__qualname__} that is not shown, because it is sensitive"
    try:
        text = repr(value)
    except Exception:  # noqa: BLE001 -- what can not be shown is named
        text = f"a {type(value).__qualname__}"
    return text if len(text) <= 80 else text[:77] + "..."
