"""What people do to jobs and queues: cancel, pause, resume.

Each works on Django's connection and so is part of the caller's transaction.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from django.db import connections

from django_pgqueue import content, functions
from django_pgqueue.exceptions import InvalidMessage

if TYPE_CHECKING:
    from django_pgqueue.compat import AnyTaskResult


def cancel(result: AnyTaskResult | str | int, *, database: str = "default") -> str | None:
    """Cancels a job, given its result or its id.

    Answers "cancelled" where it had not begun, "requested" where it runs (the task sees ``context.cancelled`` within
    about a second, an async task is cancelled), and None where it has ended or never was.

    >>> cancel(send_receipt.enqueue(order.pk))  # doctest: +SKIP
    'cancelled'
    """
    message_id = int(result if isinstance(result, (str, int)) else result.id)
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


def _checked(queue: str) -> str:
    if not content.is_name(queue):
        message = f"{queue!r} can not be the name of a queue: {content.NAMES_ARE}."
        raise InvalidMessage(message)
    return queue
