"""Times: from the values of callers to the milliseconds in the queue.  Arithmetic only."""

from __future__ import annotations

import datetime as dt
from dataclasses import dataclass
from typing import Any, TypeAlias

from django.conf import settings
from django.utils import timezone

from django_pgqueue.exceptions import InvalidMessage

EPOCH = dt.datetime(1970, 1, 1, tzinfo=dt.UTC)
MILLISECOND = dt.timedelta(milliseconds=1)
# One day inside the range of datetime, so that the time can be converted to any time zone.
EARLIEST_MS = (dt.datetime(1, 1, 2, tzinfo=dt.UTC) - EPOCH) // MILLISECOND
LATEST_MS = (dt.datetime(9999, 12, 30, tzinfo=dt.UTC) - EPOCH) // MILLISECOND
MIN_MS, MAX_MS = -(2**63), 2**63 - 1
OUT_OF_REACH_MS, PARKED_MS = MAX_MS, MAX_MS - 1
"""No times: a message waits for others, or is parked."""

MICROSECOND = dt.timedelta(microseconds=1)


@dataclass(frozen=True, slots=True)
class DequeueAt:
    """Time in epoch milliseconds before which a message does not run."""

    ms: int


@dataclass(frozen=True, slots=True)
class Delay:
    """Milliseconds from the enqueue, by the database's clock, before which a message does not run."""

    ms: int


When: TypeAlias = DequeueAt | Delay
"""Earliest time at which a message may run."""


def not_before(moment: dt.datetime) -> int:
    """Returns the first whole epoch millisecond at or after ``moment``, so that no message runs before its time.

    >>> not_before(dt.datetime(1970, 1, 1, 0, 0, 1, 1, tzinfo=dt.UTC))
    1001
    """
    return -((EPOCH - aware(moment)) // MILLISECOND)


def milliseconds(delay: dt.timedelta) -> int:
    """Returns ``delay`` in whole milliseconds, rounded up.

    >>> milliseconds(dt.timedelta(seconds=1.5))
    1500
    """
    return -(delay // MICROSECOND // -1000)  # in integers, because the longest timedelta cannot be negated


def later(now: dt.datetime, delay: dt.timedelta) -> dt.datetime:
    """Returns the time after ``delay``.  Raises InvalidMessage beyond the calendar."""
    try:
        return now + delay
    except OverflowError as error:
        message = f"run_after={delay!r} leads beyond the years 1 to 9999: give a shorter one."
        raise InvalidMessage(message) from error


def when(*, run_after: object = None, dequeue_at: int | None = None) -> When | None:
    """Returns when a message may run.  None: at once.

    >>> when(run_after=dt.timedelta(seconds=2))
    Delay(ms=2000)
    """
    if run_after is not None and dequeue_at is not None:
        message = f"run_after={run_after!r} and dequeue_at={dequeue_at!r} set the same time: give only one of them."
        raise InvalidMessage(message)
    match run_after:
        case None:
            return None if dequeue_at is None else DequeueAt(_checked(dequeue_at))
        case dt.timedelta():
            return Delay(milliseconds(run_after))
        case dt.datetime() if lacks_zone(run_after):
            message = (
                f"run_after={run_after!r} has no time zone. Use timezone.now() + timedelta(...), "
                "timezone.make_aware(...), or give a timedelta."
            )
            raise InvalidMessage(message)
        case dt.datetime():
            return DequeueAt(not_before(run_after))
        case _:
            message = f"run_after={run_after!r} is neither a datetime nor a timedelta."
            raise InvalidMessage(message)


def _checked(dequeue_at: int) -> int:
    if type(dequeue_at) is int and MIN_MS <= dequeue_at <= MAX_MS:
        return dequeue_at
    message = (
        f"dequeue_at={dequeue_at!r} is not a whole number of epoch milliseconds (64 bits). Datetimes: use run_after."
    )
    raise InvalidMessage(message)


def as_django(moment: dt.datetime) -> dt.datetime:
    """Returns a worker's aware time as Django expects it: without USE_TZ, naive and in the project's time zone."""
    if settings.USE_TZ or timezone.is_naive(moment):
        return moment
    return timezone.make_naive(moment, timezone.get_default_timezone())


def time_zone() -> dt.tzinfo:
    """Returns the time zone of naive times, and of those that people read.

    Without USE_TZ it is the project's: Django's own times are in it, whatever a middleware or a job has activated.
    """
    return timezone.get_current_timezone() if settings.USE_TZ else timezone.get_default_timezone()


def time_zone_name() -> str:
    return timezone.get_current_timezone_name() if settings.USE_TZ else timezone.get_default_timezone_name()


def aware(moment: dt.datetime) -> dt.datetime:
    """Returns a time with a time zone."""
    return timezone.make_aware(moment, time_zone()) if timezone.is_naive(moment) else moment


def microseconds(moment: dt.datetime) -> int:
    """Returns the microseconds since 1970.  Naive times are in ``time_zone()``.

    >>> microseconds(dt.datetime(1970, 1, 1, 0, 0, 1, 2, tzinfo=dt.UTC))
    1000002
    """
    return (aware(moment) - EPOCH) // MICROSECOND


def from_microseconds(since_1970: int) -> dt.datetime:
    """Returns the time in UTC.

    >>> from_microseconds(1_000_002).isoformat()
    '1970-01-01T00:00:01.000002+00:00'
    """
    return EPOCH + dt.timedelta(microseconds=since_1970)


def local(moment: dt.datetime) -> dt.datetime:
    """Returns a time in the time zone that people read: where a naive one is already."""
    return moment if timezone.is_naive(moment) else timezone.localtime(moment, time_zone())


def in_utc(moment: dt.datetime) -> dt.datetime:
    return aware(moment).astimezone(dt.UTC)


def midnight_before(moment: dt.datetime) -> dt.datetime:
    """Returns the beginning of the day in UTC, as the history is divided.

    >>> midnight_before(dt.datetime(2026, 1, 2, 23, 30, tzinfo=dt.timezone(dt.timedelta(hours=-1)))).isoformat()
    '2026-01-03T00:00:00+00:00'
    """
    return in_utc(moment).replace(hour=0, minute=0, second=0, microsecond=0)


def lacks_zone(moment: dt.datetime) -> bool:
    """Whether a caller's time could mean several moments: without USE_TZ, a naive one is in the project's time zone."""
    return settings.USE_TZ and timezone.is_naive(moment)


class EpochDateTime(dt.datetime):
    """Datetime of a number of milliseconds since 1970, which it keeps in ``epoch_ms``.

    A BIGINT can hold times that a datetime cannot.  Such a time shows as the earliest or the latest day, and the
    database still gets the original number back.

    >>> EpochDateTime.from_ms(0)
    EpochDateTime(1970, 1, 1, 0, 0, tzinfo=datetime.timezone.utc)
    >>> EpochDateTime.from_ms(-(2**63)).epoch_ms
    -9223372036854775808
    """

    given_ms: int | None = None  # None in a time that is computed from this one

    @classmethod
    def from_ms(cls, ms: int) -> EpochDateTime:
        shown = EPOCH + min(max(ms, EARLIEST_MS), LATEST_MS) * MILLISECOND
        value = cls.combine(shown.date(), shown.time(), tzinfo=dt.UTC)
        value.given_ms = ms
        return value

    @property
    def epoch_ms(self) -> int:
        return to_epoch_ms(self)

    @property
    def is_exact(self) -> bool:
        """Whether the datetime is the time itself, and not the first or the last day of the calendar."""
        return EARLIEST_MS <= self.epoch_ms <= LATEST_MS

    def isoformat(self, sep: str = "T", timespec: str = "auto") -> str:
        """Returns the number if ISO 8601 cannot express the time: JSON must not give another time back."""
        return super().isoformat(sep, timespec) if self.is_exact else str(self.epoch_ms)

    def __reduce_ex__(self, protocol: Any) -> Any:
        # Copies (of a model instance, or through a cache) use this method, and that of datetime would lose the number.
        return super().__reduce_ex__(protocol) if self.given_ms is None else (type(self).from_ms, (self.given_ms,))


def to_epoch_ms(value: dt.datetime, *, up: bool = False) -> int:
    """Returns the milliseconds since 1970 of a datetime, rounded down or ``up``.  Naive ones: in ``time_zone()``.

    >>> to_epoch_ms(dt.datetime(1970, 1, 1, 0, 0, 1, 999, tzinfo=dt.UTC))
    1000
    """
    exact: int | None = getattr(value, "given_ms", None)
    if exact is not None:
        return exact
    value = aware(value)
    return -((EPOCH - value) // MILLISECOND) if up else (value - EPOCH) // MILLISECOND
