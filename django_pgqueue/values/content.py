"""Content as JSON, checked in Python before any SQL.

PostgreSQL refuses some of what ``json.dumps`` writes (NaN, NUL, lone surrogates), and a refused statement breaks the
caller's transaction.  Other values would change on the way (keys that are not text).  Both raise errors here, which
name the place and the value.
"""

from __future__ import annotations

import datetime as dt
import json
import math
import re
from collections.abc import AsyncGenerator, Coroutine, Generator, Mapping, Sequence
from decimal import Decimal
from typing import Any
from uuid import UUID

from django.utils.functional import Promise

from django_pgqueue.exceptions import ContentTooLarge, InvalidContent
from django_pgqueue.values.limits import MAX_STORED_BYTES
from django_pgqueue.values.redaction import quote

NEXT_STEP = (
    "Pass text, numbers, booleans, None, lists and dictionaries with text keys; a primary key instead of an object."
)
NOT_RUN = (Coroutine, Generator, AsyncGenerator)
"""What a function returns whose code has not run."""
TEXT_OF = (Decimal, UUID, dt.date, dt.time, dt.timedelta)
"""Their text says all."""
EXACT_FLOATS_END = 2.0**53
LARGE_BYTES = 300_000
"""Shorter JSON has less than MAX_STORED_BYTES in PostgreSQL, which prints 1e-300 with all its digits."""
SMALL_NUMBER = re.compile(r"\de-\d")
SMALL_NUMBER_BYTES = 350
ENCODER = json.JSONEncoder(ensure_ascii=False, separators=(",", ":"), check_circular=False)


def encode(value: Any, *, max_bytes: int, what: str = "content") -> str:
    """Returns ``value`` as JSON text that a jsonb column takes and returns equal.

    >>> encode({"args": [1, "é"], "kwargs": {}}, max_bytes=100)
    '{"args":[1,"é"],"kwargs":{}}'
    """
    return dump(normalize(value, what), max_bytes=max_bytes, what=what)


def dump(normal: Any, *, max_bytes: int, what: str = "content") -> str:
    """Returns the JSON text of a value that ``normalize`` has returned."""
    try:
        text = ENCODER.encode(normal)
    except ValueError as error:  # an integer of more than 4 300 digits
        message = f"{what} cannot be stored as JSON: {error}."
        raise InvalidContent(message) from error
    size = len(text) if text.isascii() else len(text.encode())
    if size > max_bytes:
        message = (
            f"{what} has {size:,} bytes as JSON and may have {max_bytes:,}. "
            "Store the data where it belongs and pass its key, or raise MAX_CONTENT_BYTES in the backend's OPTIONS."
        )
        raise ContentTooLarge(message)
    if size > LARGE_BYTES and (stored := _stored_bytes(text, size)) > MAX_STORED_BYTES:
        message = (
            f"{what} would have up to {stored:,} bytes as PostgreSQL prints it, and may have {MAX_STORED_BYTES:,}. "
            "Store the data where it belongs and pass its key."
        )
        raise ContentTooLarge(message)
    return text


def read(text: str, what: str) -> Any:
    """Returns the value of a JSON text.  Raises InvalidContent for one that SQL has written and Python does not read.

    >>> read('{"order": 7}', "the payload")
    {'order': 7}
    """
    try:
        return json.loads(text)
    except (ValueError, RecursionError) as error:  # an integer of more than 4 300 digits, or lists in lists in lists
        message = f"{what} cannot be read: {error}. Whoever wrote it by SQL has to write numbers like that as text."
        raise InvalidContent(message) from error


def _stored_bytes(text: str, size: int) -> int:
    """Returns the largest size that PostgreSQL may print: a space behind commas and colons, and numbers in full."""
    return size + text.count(",") + text.count(":") + SMALL_NUMBER_BYTES * len(SMALL_NUMBER.findall(text))


def normalize(value: Any, what: str = "content") -> Any:
    """Returns ``value`` with JSON types only: tuples become lists, bytes become text, as in django.tasks.

    >>> normalize({"sizes": (1, 2)})
    {'sizes': [1, 2]}
    """
    try:
        return _plain(value)
    except (Unusual, RecursionError, UnicodeEncodeError):
        pass  # an error that is raised here would show this one first
    return _looked_at(value, what)


def as_stored(normal: Any) -> Any:
    """Returns a value that ``normalize`` has returned as jsonb returns it: shorter keys first, plain types, no -0.0.

    >>> as_stored({"zebra": 1, "ant": [-0.0]})
    {'ant': [0.0], 'zebra': 1}
    """
    kind = type(normal)
    if normal is None or kind is str or kind is int or kind is bool:
        return normal
    if kind is dict:
        return {str.__str__(key): as_stored(normal[key]) for key in sorted(normal, key=_place)}
    if kind is list:
        return [as_stored(item) for item in normal]
    if isinstance(normal, float):
        return float(normal) + 0.0
    return str.__str__(normal) if isinstance(normal, str) else int(normal)  # of an enum


def _place(key: str) -> tuple[int, bytes]:
    text = key.encode()
    return len(text), text


def _looked_at(value: Any, what: str) -> Any:
    try:
        return _normalize(value, what)
    except RecursionError:
        message = f"{what} is nested too deeply, or contains itself. {NEXT_STEP}"
        raise InvalidContent(message) from None


class Unusual(Exception):
    """Raised for a value that needs the slower ``_normalize``."""


def _plain(value: Any) -> Any:
    """Normalises ordinary values, which most are, without keeping track of their places.  What it returns is what
    ``_normalize`` would return.
    """
    kind = type(value)
    if kind is str:
        return _plain_text(value)
    if value is None or kind is int or kind is bool:
        return value
    if kind is dict:
        for key in value:
            if type(key) is not str:
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
        case str() | int() | float() | bytes() if value.__class__ is not type(value):
            raise _unsupported(value, where)  # a SimpleLazyObject only says that it is one
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
            raise _unsupported(value, where)


def _unsupported(value: Any, where: str) -> InvalidContent:
    next_step = NEXT_STEP
    if isinstance(value, Promise):
        next_step = "It becomes text when it is shown: pass str() of it."
    elif isinstance(value, Coroutine):
        next_step = "Nobody has awaited it. A decorator of an async function has to be async itself."
    elif isinstance(value, NOT_RUN):
        next_step = "None of its code has run: make a list of it."
    elif isinstance(value, TEXT_OF):
        next_step = "Pass str() of it."
    return InvalidContent(f"{where} is {quote(value)}. Unsupported type: {type(value).__qualname__}. {next_step}")


def _text(value: str, where: str) -> str:
    if "\x00" in value:
        message = f"{where} contains the character NUL, which PostgreSQL cannot store: {quote(value)}. Remove it first."
        raise InvalidContent(message)
    if not value.isascii():
        try:
            value.encode()
        except UnicodeEncodeError as error:
            message = f"{where} is not valid Unicode ({error.reason}): {quote(value)}. Decode it with errors='replace'."
            raise InvalidContent(message) from error
    return value


def _number(value: float, where: str) -> float | int:
    if not math.isfinite(value):
        message = f"{where} is {value!r}, which JSON cannot represent. Use None or a text instead."
        raise InvalidContent(message)
    # jsonb writes 1e23 as 100000000000000000000000, which is not the exact value of that float; int() returns that.
    return int(value) if abs(value) >= EXACT_FLOATS_END else value


def _decoded(value: bytes, where: str) -> str:
    try:
        return _text(value.decode(), where)
    except UnicodeDecodeError as error:
        message = f"{where} is bytes that are not UTF-8: {quote(value)}. Encode them first, for example with base64."
        raise InvalidContent(message) from error


def _key(key: Any, where: str) -> str:
    if not isinstance(key, str) or key.__class__ is not type(key):
        message = f"{where} has the key {quote(key)}, which JSON would turn into text. Use text keys."
        raise InvalidContent(message)
    return _text(key, f"the key {quote(key)} of {where}")
