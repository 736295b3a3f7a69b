"""Control of jobs, queues, channels and schedules: cancel, pause, resume, set limits, run now, edit all that match.

Each function works on Django's connection and so is part of the caller's transaction.  ``database``: the alias of the
queue's database (default: that of a result's backend, else of the default backend, else the only one).
"""

from __future__ import annotations

import datetime as dt
from typing import TYPE_CHECKING, Any

from django.db import DataError, transaction
from psycopg.errors import InvalidParameterValue

from django_pgqueue import functions
from django_pgqueue.backend import schedules
from django_pgqueue.backend.lookup import connected, version_of
from django_pgqueue.exceptions import DuplicateMessage, InvalidEdit, InvalidMessage, InvalidSchedule, InvalidStep
from django_pgqueue.tasks import registry
from django_pgqueue.tasks.schedule import Rule
from django_pgqueue.values import edit_filter, names, times
from django_pgqueue.values.edit_filter import Filter as Filter  # noqa: PLC0414, TC001 -- a public name
from django_pgqueue.values.redaction import quote

if TYPE_CHECKING:
    from django_pgqueue.compat import AnyTaskResult

MAX_LIMIT = 1_000_000_000
MAX_SLOTS = 1_000
ORDERS = ("pause", "resume", "stop", "slots")
MAX_ROUNDS = 100
"""Between two statements a worker may claim a message or put it back: one that is deferred quickly does both."""


def cancel(result: AnyTaskResult | str | int, *, database: str | None = None) -> str | None:
    """Cancels a job, given its result or its id.

    Returns "cancelled" if the job had not begun.  Returns "requested" if it runs: the task sees ``context.cancelled``
    within about a second, and an async task is cancelled.  Returns None if the job has ended or never existed.  Raises
    InvalidMessage for what is neither a result nor an id.

    >>> cancel(send_receipt.enqueue(order.pk))  # doctest: +SKIP
    'cancelled'
    """
    message_id = _message_id(result)
    if message_id is None:
        return None
    with connected(database, result) as connection:
        for _ in range(MAX_ROUNDS):
            if functions.message_cancel(connection, [message_id]):
                return "cancelled"
            if functions.message_request_cancel(connection, [message_id]):
                return "requested"
            if not functions.messages_left(connection, [message_id]):
                break
    return None


def run_from_step(result: AnyTaskResult | str | int, step: str, *, database: str | None = None) -> int:
    """Enqueues a durable task that has ended again, from one of its steps on, and returns the id of the new message.

    The new message keeps what was recorded before that step was first tried, and its children.  It has another
    ``context.key``.  Raises InvalidStep if the message has not ended, has no such step, or if its channel is full.

    >>> run_from_step(result, "charge")  # doctest: +SKIP
    18
    """
    names.name_of("step", step, InvalidStep)
    message_id = _message_id(result)
    if message_id is None:
        message = f"{quote(result)} is not the id of a message."
        raise InvalidStep(message)
    try:
        with connected(database, result) as connection, transaction.atomic(using=connection.alias):
            return functions.step_enqueue(connection, message_id, step, version=version_of(connection.alias))
    except DataError as error:
        if not isinstance(error.__cause__, InvalidParameterValue):
            raise
        message = f"Nothing was enqueued: {functions.refusal_of(error)}"
        raise InvalidStep(message) from error


def pause(queue: str, *, by: str | None = None, database: str | None = None) -> None:
    """Pauses a queue: running jobs go on, all others wait.  ``by``: the person who paused it, shown in the admin.

    A worker still begins the messages that it has prefetched.  Those are as many as its slots can start within about
    50 ms, at most 3,000 jobs a process.
    """
    with connected(database) as connection:
        functions.queue_pause(connection, names.name_of("queue", queue), _person(by, 255))


def resume(queue: str, *, database: str | None = None) -> bool:
    """Resumes a queue.  False: it was not paused."""
    with connected(database) as connection:
        return functions.queue_resume(connection, names.name_of("queue", queue))


def order_worker(
    worker: str, order: str, *, slots: int | None = None, by: str | None = None, database: str | None = None
) -> bool:
    """Orders a worker to "pause", to "resume", to "stop", or with "slots" to run ``slots`` jobs at a time.

    The worker follows within seconds.  Paused, it claims nothing, and its running jobs go on.  Stopped, it leaves when
    they have ended or its grace is over, with all processes of the same ``manage.py qworker``.  A worker that is
    started again knows nothing of it.  ``by``: the person, shown in the admin.  False: no such worker lives.  Raises
    InvalidMessage for another order, and for slots that are no whole number from 1 to 1,000.

    >>> order_worker("web-1-4711-0a1b2c3d", "slots", slots=8)  # doctest: +SKIP
    True
    """
    if order not in ORDERS or (order == "slots") != (slots is not None):
        message = f"{order!r} with slots={slots!r} is no order: {', '.join(ORDERS)}, and the last one with a number."
        raise InvalidMessage(message)
    if slots is not None and not (type(slots) is int and 1 <= slots <= MAX_SLOTS):
        message = f"A worker cannot have {slots!r} slots: give it a whole number from 1 to {MAX_SLOTS:,}."
        raise InvalidMessage(message)
    name = names.name_of("worker", worker)
    with connected(database) as connection:
        return functions.worker_order(connection, name, order, slots=slots, by=_person(by, 255))


def pause_schedule(name: str, *, database: str | None = None) -> bool:
    """Pauses a schedule: it enqueues nothing until it is resumed.  False: it was paused already.

    Raises InvalidSchedule if there is no such schedule.
    """
    with connected(database) as connection:
        return functions.schedule_pause(connection, _known(connection, name).name)


def resume_schedule(name: str, *, database: str | None = None) -> bool:
    """Resumes a schedule with its next slot; slots in the pause do not count as missed.  False: it was not paused.

    Raises InvalidSchedule if there is no such schedule.
    """
    with connected(database) as connection:
        known = _known(connection, name)
        rule = Rule(cron=known.cron, interval_ms=known.interval_ms, timezone=known.timezone)
        next_at = times.not_before(rule.first_after(functions.now(connection)))
        return functions.schedule_resume(connection, name, next_at=next_at)


def run_schedule(name: str, *, database: str | None = None) -> int:
    """Enqueues the job of a schedule now, in addition to its slots, and returns the id of its message.

    If another message holds the unique key of the task, it returns the id of that message or raises
    ``DuplicateMessage``, as ``enqueue`` does.  Raises ``InvalidSchedule`` if there is no such schedule.
    """
    with connected(database) as connection:
        known = _known(connection, name)
        message = schedules.message_of(connection, known, version=version_of(connection.alias))
        if message is None:
            raise _unknown(name)
        created = functions.enqueue(connection, message, f"The message of schedule {name!r}")
    if not created.is_new and getattr(registry.find(known.task), "on_conflict", "keep") == "raise":
        words = f"{known.task} is already enqueued: message {created.id} holds its unique key."
        raise DuplicateMessage(words, existing_id=created.id)
    return created.id


def set_channel(
    name: str,
    *,
    max_concurrency: int | None = None,
    max_size: int | None = None,
    release_interval: float | dt.timedelta | None = None,
    database: str | None = None,
) -> None:
    """Sets all limits of a channel; None: no such limit.  A channel that was released is in use again.

    ``max_concurrency``: how many of its messages may run at a time, in all queues together (0: none may run).
    ``max_size``: how many of its messages may wait; beyond that, enqueues raise ``ChannelFull``.
    ``release_interval``: seconds, or a timedelta, between the starts of two messages.  Raises InvalidMessage for a
    number below 0 or above 1,000,000,000 (of ms, for the interval).

    >>> set_channel("acme", max_concurrency=5, release_interval=0.2)  # doctest: +SKIP
    """
    limits = {"max_concurrency": max_concurrency, "max_size": max_size}
    for what, limit in limits.items():
        if limit is not None and (type(limit) is not int or not 0 <= limit <= MAX_LIMIT):
            message = f"{what} must be a whole number from 0 to {MAX_LIMIT:,}, or None for no limit, not {limit!r}."
            raise InvalidMessage(message)
    interval_ms = None if release_interval is None else _milliseconds(release_interval)
    with connected(database) as connection:
        functions.channel_set(connection, names.name_of("channel", name), release_interval_ms=interval_ms, **limits)


def release_channel(name: str, *, database: str | None = None) -> bool:
    """Releases a channel: enqueues raise ``ChannelReleased``, and the channel is deleted when its messages have ended.

    True: the channel is deleted already.  False: it still has messages.  Raises InvalidMessage if there is no such
    channel.
    """
    with connected(database) as connection:
        gone = functions.channel_release(connection, names.name_of("channel", name))
    if gone is None:
        message = f"There is no channel {name!r}: it has neither limits nor messages."
        raise InvalidMessage(message)
    return gone


def repair_channels(name: str | None = None, *, database: str | None = None) -> list[functions.Recount]:
    """Recounts the running messages of each channel, or of one, and returns the corrected counts: (channel, before,
    after).  Needed after triggers were switched off or the table was truncated; nothing else makes a count wrong.
    """
    with connected(database) as connection:
        return functions.channel_repair(connection, None if name is None else names.name_of("channel", name))


def edit(
    action: str,
    which: Filter,
    *,
    run_at: dt.datetime | None = None,
    queue: str | None = None,
    priority: int | None = None,
    by: str | None = None,
    database: str | None = None,
) -> int:
    """Asks for an edit: an action for everything that matches a filter, which workers do.

    Actions: "run_now", "postpone" (``run_at``), "cancel", "delete", "move" (``queue``), "prioritise" (``priority``),
    and "enqueue_again", which takes messages of the history.  ``by``: who asks, shown in the admin.  Returns the id of
    the edit, for ``edit_state``, ``stop_edit`` and ``resume_edit``, which raise InvalidEdit for any other id.  Raises
    InvalidEdit for an action, a filter or a parameter that do not go together.

    >>> edit("cancel", Filter(queue="bulk", task="shop.tasks.send_mail"), by="Ada")  # doctest: +SKIP
    17
    """
    what = which.as_json(action)
    how = edit_filter.parameters(
        action, run_at=run_at, queue=None if queue is None else names.name_of("queue", queue), priority=priority
    )
    with connected(database) as connection:
        return functions.edit_ask(connection, action, what, how, by=_person(by, 63))


def count_edit(
    action: str,
    which: Filter,
    *,
    seconds: float | None = None,
    database: str | None = None,
) -> functions.EditCount:
    """Counts what matches the filter of an edit, for at most so many ``seconds``, and changes nothing."""
    with connected(database) as connection:
        return functions.edit_count(connection, action, which.as_json(action), seconds=seconds)


def edit_state(edit_id: int, *, database: str | None = None) -> functions.EditState:
    """Returns how far an edit is."""
    with connected(database) as connection:
        found = functions.edit_state(connection, _edit_id(edit_id))
    if found is None:
        raise _unknown_edit(edit_id)
    return found


def stop_edit(edit_id: int, *, by: str | None = None, database: str | None = None) -> bool:
    """Stops an edit: what it has done stays done.  False: it has ended, or was stopped before."""
    with connected(database) as connection:
        return functions.edit_stop(connection, _edit_id(edit_id), by=_person(by, 63))


def resume_edit(edit_id: int, *, database: str | None = None) -> bool:
    """Lets a stopped edit go on where it stood.  False: it has ended, or was not stopped."""
    with connected(database) as connection:
        return functions.edit_resume(connection, _edit_id(edit_id))


def _message_id(result: AnyTaskResult | str | int) -> int | None:
    from django_pgqueue.backend import results  # noqa: PLC0415 -- imports models: not before the apps are ready

    return results.message_id_of(results.id_of(result))


def _person(by: Any, length: int) -> str | None:
    """Returns the name of who asks, as long as its column."""
    if by is None:
        return None
    if not isinstance(by, str):
        message = f"by must be a text, such as user.get_username(), not {quote(by)}."
        raise InvalidMessage(message)
    return by[:length]


def _edit_id(given: Any) -> int:
    if type(given) is not int or not 0 < given < 2**63:
        raise _unknown_edit(given)
    return given


def _unknown_edit(edit_id: Any) -> InvalidEdit:
    return InvalidEdit(f"There is no edit {quote(edit_id)}. An edit is deleted a year after its end.")


def _milliseconds(interval: float | dt.timedelta) -> int:
    number = interval.total_seconds() if isinstance(interval, dt.timedelta) else interval
    if type(number) not in (int, float) or not 0 <= number * 1000 <= MAX_LIMIT:
        message = (
            f"release_interval must be a number of seconds from 0 to {MAX_LIMIT // 1000:,}, a timedelta, or None, "
            f"not {interval!r}."
        )
        raise InvalidMessage(message)
    return round(number * 1000)


def _known(connection: Any, name: str) -> functions.KnownSchedule:
    found, _ = functions.schedules(connection, [name])
    if not found:
        raise _unknown(name)
    return found[0]


def _unknown(name: str) -> InvalidSchedule:
    return InvalidSchedule(
        f"There is no schedule {name!r}. Workers create the schedules of the project's code when they start."
    )
