"""What people do to jobs, queues and schedules: cancel, pause, resume, run now.

Each works on Django's connection and so is part of the caller's transaction.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from django.db import connections

from django_pgqueue import content, functions, schedule
from django_pgqueue.exceptions import InvalidMessage, InvalidSchedule
from django_pgqueue.recurrence import Rule

if TYPE_CHECKING:
    from django_pgqueue.compat import AnyTaskResult


def cancel(result: AnyTaskResult | str | int, *, database: str = "default") -> str | None:
    """Cancels a job, given its result or its id.

    Answers "cancelled" where it had not begun, "requested" where it runs (the task sees ``context.cancelled`` within
    about a second, an async task is cancelled), and None where it has ended or never was.

    >>> cancel(send_receipt.enqueue(order.pk))  # doctest: +SKIP
    'cancelled'
    """
    from django_pgqueue import results  # noqa: PLC0415 -- imports models: not before the apps are ready

    message_id = results.message_id_of(result if isinstance(result, (str, int)) else result.id)
    if message_id is None:
        return None
    for _ in range(2):  # it may come back into the queue, or leave it, between one look and the other
        if functions.message_cancel(connections[database], [message_id]):
            return "cancelled"
        if functions.message_request_cancel(connections[database], [message_id]):
            return "requested"
    return None


def pause(queue: str, *, by: str | None = None, database: str = "default") -> None:
    """Pauses a queue: what runs goes on, what comes waits.  ``by``: who did it, shown to those who wonder."""
    functions.queue_pause(connections[database], _checked(queue), by)


def resume(queue: str, *, database: str = "default") -> bool:
    """Resumes a queue.  False: it was not paused."""
    return functions.queue_resume(connections[database], _checked(queue))


def pause_schedule(name: str, *, database: str = "default") -> bool:
    """Pauses a schedule: nothing is enqueued until it is resumed.  False: it was paused already."""
    return functions.schedule_pause(connections[database], _known(name, database).name)


def resume_schedule(name: str, *, database: str = "default") -> bool:
    """Resumes a schedule with its next slot: those that passed meanwhile were not missed.  False: it was not paused."""
    known, connection = _known(name, database), connections[database]
    rule = Rule(cron=known.cron, interval_ms=known.interval_ms, timezone=known.timezone)
    next_at = schedule.not_before(rule.first_after(functions.now(connection)))
    return functions.schedule_resume(connection, name, next_at=next_at)


def run_schedule(name: str, *, database: str = "default") -> int:
    """Enqueues the job of a schedule now, beside its slots, and answers the id of its message."""
    message_id = functions.schedule_run(connections[database], _known(name, database).name)
    assert message_id is not None  # noqa: S101 -- it is known
    return message_id


def _known(name: str, database: str) -> functions.KnownSchedule:
    found, _ = functions.schedules(connections[database], [name])
    if not found:
        message = f"There is no schedule {name!r}. Workers make those of the project's code when they start."
        raise InvalidSchedule(message)
    return found[0]


def _checked(queue: str) -> str:
    if not content.is_name(queue):
        message = f"{queue!r} can not be the name of a queue: {content.NAMES_ARE}."
        raise InvalidMessage(message)
    return queue
