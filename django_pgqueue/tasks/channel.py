"""The channels of tasks."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from django_pgqueue.compat import InvalidTask
from django_pgqueue.values import names

if TYPE_CHECKING:
    from django_pgqueue.compat import AnyTask


def channel_of(task: AnyTask, call: dict[str, Any]) -> str | None:
    """Returns the channel of a call's message.  None: it has none."""
    declared = getattr(task, "channel", None)
    channel: str | None = declared(*call["args"], **call["kwargs"]) if callable(declared) else declared
    if callable(declared) and channel is not None and not names.is_name(channel):
        message = (
            f"The channel of {task.module_path} is {channel!r:.100} for this call. It must be None or the name of a "
            f"channel: {names.NAMES_ARE}."
        )
        raise InvalidTask(message)
    return channel


def validate(task: AnyTask) -> None:
    channel = getattr(task, "channel", None)
    if channel is not None and not isinstance(channel, str) and not callable(channel):
        message = (
            f"channel must be a text, a callable that returns one from the task's arguments, or None, not {channel!r}."
        )
        raise InvalidTask(message)
    if isinstance(channel, str):
        names.name_of("channel", channel, InvalidTask)
