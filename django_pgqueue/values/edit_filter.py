"""The actions of edits, and the filter of the messages that an edit means."""

from __future__ import annotations

import dataclasses
import datetime as dt
import math
from dataclasses import dataclass
from typing import Any, ClassVar

from django_pgqueue.exceptions import InvalidEdit
from django_pgqueue.values.limits import MAX_PRIORITY, MIN_PRIORITY
from django_pgqueue.values.redaction import quote
from django_pgqueue.values.times import lacks_zone, to_epoch_ms

ACTIONS = {
    "run_now": None, "postpone": "run_at", "cancel": None, "delete": None, "move": "queue", "prioritise": "priority",
    "enqueue_again": None,
}  # fmt: skip
"""The actions, and the parameter that each of them needs."""
AGAIN = "enqueue_again"
"""The action that is about the history."""
MAX_TEXT = 500


@dataclass(frozen=True, slots=True, kw_only=True)
class Filter:
    """The messages that are meant: those that match all that is given.  ``Filter()`` means everything.

    ``raw``: True for raw messages, False for tasks.  ``status``: scheduled, ready, running or expired; for
    ``enqueue_again`` succeeded, failed, cancelled or lost.  ``argument``: a value anywhere in the content; a number
    also matches a text of it.  ``error_group``: the key of a group of the admin's page of errors.

    ``run_at_from``, ``run_at_until`` are about messages in the queue; ``finished_from``, ``finished_until``,
    ``error_class`` and ``error`` about the history, from which ``enqueue_again`` takes them.  ``error``: a part of the
    class of the error or of its message.

    >>> Filter(queue="mail", priority_until=0).as_json("cancel")
    {'queue': 'mail', 'priority_until': 0}
    """

    queue: str | None = None
    task: str | None = None
    raw: bool | None = None
    task_contains: str | None = None
    channel: str | None = None
    status: str | None = None
    priority_from: int | None = None
    priority_until: int | None = None
    created_from: dt.datetime | None = None
    created_until: dt.datetime | None = None
    run_at_from: dt.datetime | None = None
    run_at_until: dt.datetime | None = None
    finished_from: dt.datetime | None = None
    finished_until: dt.datetime | None = None
    error: str | None = None
    error_class: str | None = None
    error_contains: str | None = None
    error_group: str | None = None
    argument: str | float | bool | None = None

    OF_MESSAGES: ClassVar = frozenset({"run_at_from", "run_at_until"})
    OF_HISTORY: ClassVar = frozenset({"finished_from", "finished_until", "error", "error_class"})
    STATUSES: ClassVar = ("scheduled", "ready", "running", "expired")
    ENDS: ClassVar = ("succeeded", "failed", "cancelled", "lost")

    def as_json(self, action: str) -> dict[str, Any]:
        """Returns the filter for the SQL functions.  Raises ``InvalidEdit`` for what the action cannot have."""
        if action not in ACTIONS:
            message = f"{quote(action)} is no action of an edit: these are {', '.join(ACTIONS)}."
            raise InvalidEdit(message)
        given = {field.name: getattr(self, field.name) for field in dataclasses.fields(self)}
        given = {name: value for name, value in given.items() if value is not None}
        foreign = (self.OF_MESSAGES if action == AGAIN else self.OF_HISTORY) & given.keys()
        if foreign:
            about = "messages in the queue" if action == AGAIN else "the history"
            message = f"{action} cannot be filtered by {min(foreign)}, which is about {about}."
            raise InvalidEdit(message)
        return {name: self._value(name, value, action) for name, value in given.items()}

    def _value(self, name: str, value: Any, action: str) -> Any:
        if name.endswith(("_from", "_until")) and not name.startswith("priority"):
            _check_time(name, value)
            return to_epoch_ms(value)
        if name == "argument":
            _check(name, value, isinstance(value, (str, int, float)), "a text, a number, or True or False")
            _check(name, value, not isinstance(value, float) or math.isfinite(value), "a number that JSON has")
        elif name == "raw":
            _check(name, value, isinstance(value, bool), "True or False")
        elif name.startswith("priority"):
            _check_priority(name, value)
        else:
            _check(name, value, isinstance(value, str), "a text")
        if isinstance(value, str):
            is_storable = 0 < len(value) <= MAX_TEXT and value.isprintable()
            _check(name, value, is_storable, f"a text of 1 to {MAX_TEXT} characters, without control characters")
        if name == "status":
            known = self.ENDS if action == AGAIN else self.STATUSES
            _check(name, value, value in known, f"one of {', '.join(known)}")
        return value


def _check_time(name: str, value: Any) -> None:
    _check(name, value, isinstance(value, dt.datetime) and not lacks_zone(value), "a datetime with a time zone")


def _check_priority(name: str, value: Any) -> None:
    is_one = type(value) is int and MIN_PRIORITY <= value <= MAX_PRIORITY
    _check(name, value, is_one, f"a whole number from {MIN_PRIORITY} to {MAX_PRIORITY}")


def _check(name: str, value: Any, is_right: bool, must_be: str) -> None:
    if not is_right:
        message = f"{name} must be {must_be}, not {quote(value)}."
        raise InvalidEdit(message)


def parameters(action: str, *, run_at: Any, queue: str | None, priority: Any) -> dict[str, str | int]:
    """Returns the parameters of an edit for the SQL functions.  Raises ``InvalidEdit`` for those that are not its own.

    >>> parameters("move", run_at=None, queue="bulk", priority=None)
    {'queue': 'bulk'}
    """
    wanted = ACTIONS.get(action)
    given = {
        name: value
        for name, value in (("run_at", run_at), ("queue", queue), ("priority", priority))
        if value is not None
    }
    if set(given) != ({wanted} if wanted else set()):
        message = f"{action} needs {wanted or 'no parameter'}, and got {', '.join(given) or 'none'}."
        raise InvalidEdit(message)
    if run_at is not None:
        _check_time("run_at", run_at)
    if priority is not None:
        _check_priority("priority", priority)
    return {name: to_epoch_ms(value) if isinstance(value, dt.datetime) else value for name, value in given.items()}
