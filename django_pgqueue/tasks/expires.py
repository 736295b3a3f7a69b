"""``expires``: the time until which a message is worth beginning.

It stands in the message's headers, so that a message without it costs nothing: no column, no index, no look at a claim.
"""

from __future__ import annotations

import datetime as dt
import json
from typing import TYPE_CHECKING, Any

from django_pgqueue.compat import InvalidTask
from django_pgqueue.exceptions import InvalidContent, TaskExpired
from django_pgqueue.values import redaction, times
from django_pgqueue.values.expiry import AFTER, AT

if TYPE_CHECKING:
    from django_pgqueue.compat import AnyTask
    from django_pgqueue.functions import Received


def validate(task: AnyTask) -> None:
    expires = getattr(task, "expires", None)
    if expires is None:
        return
    if isinstance(expires, dt.timedelta):
        if expires <= dt.timedelta(0):
            message = f"expires must be a timedelta above 0, not {expires!r}: the message would never begin."
            raise InvalidTask(message)
        delay = getattr(task, "run_in", None)
        if isinstance(delay, dt.timedelta) and delay >= expires:
            message = f"The message would expire after {expires}, before it may run after {delay}: correct expires."
            raise InvalidTask(message)
        return
    if not isinstance(expires, dt.datetime):
        message = f"expires must be a timedelta from the enqueue on, or an aware datetime, not {expires!r}."
        raise InvalidTask(message)
    if times.lacks_zone(expires):
        message = f"expires={expires!r} has no time zone. Use timezone.now() + timedelta(...), or give a timedelta."
        raise InvalidTask(message)
    if task.run_after is not None and times.aware(task.run_after) >= times.aware(expires):
        message = f"The message would expire at {expires}, before it may run at {task.run_after}: give a later expires."
        raise InvalidTask(message)


def require_unexpired(message: Received, now: dt.datetime) -> None:
    """Raises TaskExpired if nobody has begun the message by its time.

    A message that is enqueued again from the history has been asked for anew: its old time does not count.  Headers
    that somebody wrote by hand in another form raise InvalidContent.
    """
    if message.headers is None or message.attempt > 1 or "expires_" not in message.headers:
        return
    headers = json.loads(message.headers)
    try:
        until = expires_at(headers, message.created_at)
    except (TypeError, ValueError, OverflowError) as error:
        text = (
            f"The headers of message {message.id} do not say when it expires: {AFTER} is a number of microseconds, or "
            f"{AT} a time in ISO 8601, not {redaction.quote(headers.get(AFTER, headers.get(AT)))}."
        )
        raise InvalidContent(text) from error
    if until is not None and times.aware(now) > until:
        text = f"Nobody began the message by {until:%Y-%m-%d %H:%M:%S} UTC, when it expired."
        raise TaskExpired(text)


def expires_at(headers: Any, created_at: dt.datetime) -> dt.datetime | None:
    """Returns the time at which a message with these headers expires.  None: never."""
    if not isinstance(headers, dict) or "enqueued_again_from" in headers:
        return None
    if AFTER in headers:
        try:
            return times.in_utc(created_at) + dt.timedelta(microseconds=headers[AFTER])
        except OverflowError:  # beyond the calendar
            return None
    if AT in headers:
        until = dt.datetime.fromisoformat(headers[AT])
        if until.year == dt.MAXYEAR:  # in UTC it may be beyond the calendar
            return None
        return until.replace(tzinfo=dt.UTC) if until.tzinfo is None else until.astimezone(dt.UTC)
    return None
