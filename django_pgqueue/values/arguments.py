"""Checks of the arguments of callers: names, priorities, attempts, times."""

from __future__ import annotations

from typing import Any

from django_pgqueue.exceptions import InvalidMessage
from django_pgqueue.values.limits import MAX_MAX_ATTEMPTS, MAX_PRIORITY, MIN_PRIORITY
from django_pgqueue.values.names import name_of

MAX_LIMIT = 2**31 - 1
MAX_LOCK_SECONDS, MAX_WAIT_SECONDS = 1e9, 1e12


def id_of(given: Any) -> Any:
    """Returns the id of a result or a message, or what was given: a row of another model has the id of something else.

    >>> id_of("7")
    '7'
    """
    label = getattr(getattr(given, "_meta", None), "label", None)
    return given if label not in (None, "django_pgqueue.Message") else getattr(given, "id", given)


def is_max_attempts(value: object) -> bool:
    """
    >>> [is_max_attempts(value) for value in (None, 1, 0, 2.0, True)]
    [True, True, False, False, False]
    """
    return value is None or (type(value) is int and 1 <= value <= MAX_MAX_ATTEMPTS)


def checked_channel(channel: str | None) -> str | None:
    return None if channel is None else name_of("channel", channel)


def checked_priority(priority: int) -> int:
    if type(priority) is not int or not MIN_PRIORITY <= priority <= MAX_PRIORITY:
        message = f"priority={priority!r} is not a whole number from {MIN_PRIORITY} to {MAX_PRIORITY}."
        raise InvalidMessage(message)
    return priority


def checked_max_attempts(max_attempts: int | None) -> int | None:
    if not is_max_attempts(max_attempts):
        message = f"max_attempts={max_attempts!r} is neither a whole number from 1 to {MAX_MAX_ATTEMPTS:,} nor None."
        raise InvalidMessage(message)
    return max_attempts


def checked_lock_ms(lock_seconds: float) -> int:
    if type(lock_seconds) not in (int, float) or not 0 < lock_seconds < MAX_LOCK_SECONDS:
        message = f"lock_seconds={lock_seconds!r} is not a number of seconds above 0 and below a billion."
        raise InvalidMessage(message)
    return max(1, round(lock_seconds * 1000))


def checked_wait_ms(seconds: float) -> int:
    if type(seconds) not in (int, float) or not abs(seconds) < MAX_WAIT_SECONDS:
        message = f"seconds={seconds!r} is not a number of seconds (below {MAX_WAIT_SECONDS:,.0f})."
        raise InvalidMessage(message)
    return round(seconds * 1000)
