"""Unique keys of tasks."""

from __future__ import annotations

import hashlib
import json
from typing import TYPE_CHECKING, Any

from django_pgqueue.compat import InvalidTask
from django_pgqueue.functions.new_message import UniqueKey
from django_pgqueue.tasks import registry
from django_pgqueue.values import names, redaction

if TYPE_CHECKING:
    from django_pgqueue.compat import AnyTask

ON_CONFLICT = ("keep", "replace", "debounce", "raise")
UNTIL = ("finished", "started")
MAX_BYTES = 2000
"""A key is in an index, whose entries have room for about 2 700 bytes, and the task's path is part of the entry."""


def key_of(task: AnyTask, call: dict[str, Any]) -> UniqueKey | None:
    """Returns the key of a call's message, or None.  The task's path comes first, so that two tasks never share one."""
    declared = getattr(task, "unique_key", None)
    if declared is None:
        return None
    key = _own_key(task, declared, call)
    if not names.is_text(key, max_bytes=MAX_BYTES) or key == "":
        message = (
            f"The unique_key of {task.module_path} is {redaction.quote(key)}. It must be a text of 1 to {MAX_BYTES:,} "
            "bytes in UTF-8, without NUL, or a callable that returns one from the task's arguments."
        )
        raise InvalidTask(message)
    return UniqueKey(
        f"{task.module_path}:{key}",
        on_conflict=_policy_of(task),
        until_started=getattr(task, "unique_until", "finished") == "started",
    )


def _policy_of(task: AnyTask) -> str:
    """Returns the policy for the SQL: "keep" instead of "raise", where Python raises after the SQL kept the message."""
    on_conflict: str = getattr(task, "on_conflict", "keep")
    return "keep" if on_conflict == "raise" else on_conflict


def _own_key(task: AnyTask, declared: Any, call: dict[str, Any]) -> Any:
    if declared is True:
        # Of a call without names it is the key of the call as it stands: 0.1.0 wrote it, too.
        call = registry.declared_parameters(task.module_path).bound(call["args"], call["kwargs"])
        return hashlib.sha256(json.dumps(call, sort_keys=True).encode()).hexdigest()
    if callable(declared):
        return declared(*call["args"], **call["kwargs"])
    return declared


def validate(task: AnyTask) -> None:
    key = getattr(task, "unique_key", None)
    on_conflict, until = getattr(task, "on_conflict", "keep"), getattr(task, "unique_until", "finished")
    if key is not None and key is not True and not isinstance(key, str) and not callable(key):
        message = f"unique_key must be True (one message for each set of arguments), a text or a callable, not {key!r}."
        raise InvalidTask(message)
    if isinstance(key, str) and not names.is_name(key):
        message = f"{key!r} cannot be a unique_key: {names.NAMES_ARE}."
        raise InvalidTask(message)
    if on_conflict not in ON_CONFLICT:
        message = f"on_conflict must be one of {', '.join(ON_CONFLICT)}, not {on_conflict!r}."
        raise InvalidTask(message)
    if until not in UNTIL:
        message = f"unique_until must be one of {', '.join(UNTIL)}, not {until!r}."
        raise InvalidTask(message)
