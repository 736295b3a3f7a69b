"""From the times that callers speak of to the milliseconds that the queue keeps: arithmetic only."""

from __future__ import annotations

import datetime as dt

from django.conf import settings
from django.utils import timezone

from django_pgqueue.exceptions import InvalidMessage
from django_pgqueue.models.fields import EPOCH, LARGEST_MS, SMALLEST_MS

MICROSECOND = dt.timedelta(microseconds=1)
MILLISECOND = dt.timedelta(milliseconds=1)


def not_before(moment: dt.datetime) -> int:
    """The first whole epoch millisecond at or after ``moment``, so that nothing runs before its time.

    >>> not_before(dt.datetime(1970, 1, 1, 0, 0, 1, 1, tzinfo=dt.UTC))
    1001
    """
    if timezone.is_naive(moment):
        moment = timezone.make_aware(moment)
    return -((EPOCH - moment) // MILLISECOND)


def milliseconds(delay: dt.timedelta) -> int:
    """``delay`` in whole milliseconds, rounded up.

    >>> milliseconds(dt.timedelta(seconds=1.5))
    1500
    """
    return -(delay // MICROSECOND // -1000)  # in integers: the longest timedelta has no negative


def split(*, run_after: object = None, dequeue_at: int | None = None) -> tuple[int | None, int | None]:
    """``(dequeue_at, delay_ms)`` of a message."""
    if run_after is not None and dequeue_at is not None:
        message = f"run_after={run_after!r} and dequeue_at={dequeue_at!r} say the same thing: give one of them."
        raise InvalidMessage(message)
    match run_after:
        case None:
            return _checked(dequeue_at), None
        case dt.timedelta():
            return None, milliseconds(run_after)
        case dt.datetime() if timezone.is_naive(run_after):
            message = (
                f"run_after={run_after!r} has no time zone. Use timezone.now() + timedelta(...), "
                "timezone.make_aware(...), or give a timedelta."
            )
            raise InvalidMessage(message)
        case dt.datetime():
            return not_before(run_after), None
        case _:
            message = f"run_after={run_after!r} is neither a datetime nor a timedelta."
            raise InvalidMessage(message)


def _checked(dequeue_at: int | None) -> int | None:
    if dequeue_at is None or (type(dequeue_at) is int and SMALLEST_MS <= dequeue_at <= LARGEST_MS):
        return dequeue_at
    message = (
        f"dequeue_at={dequeue_at!r} is not a whole number of epoch milliseconds (64 bits). Datetimes: use run_after."
    )
    raise InvalidMessage(message)


def as_django(moment: dt.datetime) -> dt.datetime:
    """Without USE_TZ Django's times are naive and in the project's time zone; a worker's are always aware."""
    if settings.USE_TZ or timezone.is_naive(moment):
        return moment
    return timezone.make_naive(moment, timezone.get_default_timezone())
