"""Calls of tasks, and the messages that are made of them."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from django_pgqueue.functions.new_message import After, NewMessage
from django_pgqueue.tasks import after as dependencies, channel as channels, habits, registry, unique
from django_pgqueue.values import content, times, versions
from django_pgqueue.values.expiry import headers_of

if TYPE_CHECKING:
    import datetime as dt
    from collections.abc import Callable, Mapping, Sequence

    from django_pgqueue.compat import AnyTask
    from django_pgqueue.conf import Options
    from django_pgqueue.functions.new_message import UniqueKey

    Headers = Mapping[str, Any] | None


@dataclass(frozen=True, slots=True)
class PreparedCall:
    """Checked call of a task, with its message."""

    arguments: dict[str, Any]
    """``{"args": [...], "kwargs": {...}}``, with JSON types only."""
    message: NewMessage


def prepare(
    task: AnyTask,
    args: Sequence[Any],
    kwargs: Mapping[str, Any],
    options: Options,
    *,
    add_headers: Callable[[Headers], Headers],
) -> PreparedCall:
    """Returns the message of one call, with its unique key and channel.  ``options``: those of the task's backend."""
    arguments, text = write(list(args), dict(kwargs), max_bytes=options.max_content_bytes, what="the task's call")
    fit(task, arguments)
    channel, key = channel_and_key(task, arguments)
    message = NewMessage(
        content=text,
        channel=channel,
        unique=key,
        after=after_of(task),
        **shared(task, options, add_headers=add_headers),
    )
    return PreparedCall(arguments, message)


def fit(task: AnyTask, arguments: Mapping[str, Any]) -> None:
    """Raises TypeError, as a call does, if the task's function does not take these arguments."""
    refusal = registry.declared_parameters(task.module_path).refusal(arguments["args"], arguments["kwargs"])
    if refusal is not None:
        message = f"{task.module_path} cannot be called with these arguments: {refusal}."
        names = [name for name in arguments["kwargs"] if refusal.endswith(f"unexpected keyword argument {name!r}")]
        instead = [habits.of_one_call(name, task.func.__name__) for name in names]
        raise TypeError(" ".join([message, *filter(None, instead)]))


def write(args: Sequence[Any], kwargs: Mapping[str, Any], *, max_bytes: int, what: str) -> tuple[dict[str, Any], str]:
    """Returns the arguments with JSON types only, and as JSON text.  ``what``: their name in errors."""
    arguments = {
        "args": content.normalize(args, f"{what}['args']"),
        "kwargs": content.normalize(kwargs, f"{what}['kwargs']") if kwargs else {},
    }
    return arguments, content.dump(arguments, max_bytes=max_bytes, what=what)


def channel_and_key(
    task: AnyTask, arguments: dict[str, Any], *, channel: str | None = None
) -> tuple[str | None, UniqueKey | None]:
    """Returns the channel and the unique key of a call's message, which the task may compute from the arguments.

    ``channel``: the caller's choice instead of the task's.
    """
    if channel is None:
        channel = channels.channel_of(task, arguments)
    return channel, unique.key_of(task, arguments)


def after_of(task: AnyTask) -> After | None:
    """Returns what the messages of a task wait for."""
    after: tuple[int, ...] = getattr(task, "after", ())
    if not after:
        return None
    return After(after, getattr(task, "after_policy", "finished"), getattr(task, "after_results", False))


def shared(
    task: AnyTask, options: Options, *, add_headers: Callable[[Headers], Headers], now: dt.datetime | None = None
) -> dict[str, Any]:
    """Returns the fields of ``NewMessage`` that do not depend on the arguments of a call.

    ``add_headers`` adds the caller's place in a trace to the task's headers.  ``now``: start of the delay, so that all
    messages of a bulk have the same time.
    """
    when, asked = _when(task, now)
    if until := headers_of(task):
        asked = until | dict(asked or {})
    if getattr(task, "after_results", False):
        asked = {dependencies.RESULTS: True} | dict(asked or {})
    headers = add_headers(asked)
    return {
        "queue": task.queue_name,
        "task": task.module_path,
        "priority": int(task.priority),
        "when": when,
        "headers": None if headers is None else json.dumps(headers),
        "max_attempts": max_attempts(task, options),
        "max_lost": getattr(task, "max_lost", None),
        "version": versions.checked(options.version),
    }


def max_attempts(task: AnyTask, options: Options) -> int | None:
    own: int | None = getattr(task, "max_attempts", None)
    return options.max_attempts if own is None else own


def _when(task: AnyTask, now: dt.datetime | None) -> tuple[times.When | None, Headers]:
    """Returns when the task may run, and the headers that keep it.

    The headers keep the exact value of the caller: ``dequeue_at`` is rounded to milliseconds and moves with each retry.
    """
    delay: dt.timedelta | None = getattr(task, "run_in", None)
    if delay is not None and now is None:
        return times.Delay(times.milliseconds(delay)), {"delay_us": delay // times.MICROSECOND}
    run_after = task.run_after if delay is None or now is None else times.later(now, delay)
    if run_after is None:
        return None, None
    return times.DequeueAt(times.not_before(run_after)), {"run_after": run_after.isoformat()}
