"""What comes again and again: rules, and the slots that follow from them.  Arithmetic only."""

from __future__ import annotations

import datetime as dt
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from django_pgqueue.exceptions import InvalidSchedule
from django_pgqueue.fields import EPOCH

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

CATCH_UP = ("skip", "one", "all")
ON_TIME = dt.timedelta(seconds=60)
"""A slot that is younger has not been missed: workers need a moment."""
MOST_SLOTS = 1000
"""How many missed slots are looked at a time; what is left over is dealt with a moment later."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Rule:
    """When something is due: by a cron expression in a time zone, or every so many milliseconds since 1970."""

    cron: str | None = None
    interval_ms: int | None = None
    timezone: str = "UTC"

    def __post_init__(self) -> None:
        if (self.cron is None) == (self.interval_ms is None):
            message = "A schedule has either a cron expression or an interval."
            raise InvalidSchedule(message)
        if self.interval_ms is not None and self.interval_ms < 1:
            message = f"The interval of a schedule must be at least a millisecond, not {self.interval_ms} ms."
            raise InvalidSchedule(message)
        next(self.after(EPOCH))

    def after(self, moment: dt.datetime) -> Iterator[dt.datetime]:
        """The slots after ``moment``, in order, in UTC.

        >>> [slot.hour for slot, _ in zip(Rule(cron="0 */6 * * *").after(EPOCH), range(3))]
        [6, 12, 18]
        """
        if self.cron is not None:
            return self._by_cron(self.cron, moment)
        return self._by_interval(dt.timedelta(milliseconds=self.interval_ms or 0), moment)

    def _by_cron(self, expression: str, moment: dt.datetime) -> Iterator[dt.datetime]:
        # cronsim knows what Debian's cron does when clocks change: a job of a skipped hour runs right after it, one of
        # a repeated hour runs once, and what runs every few minutes goes on doing so.
        try:
            from cronsim import CronSim, CronSimError  # noqa: PLC0415 -- only who uses cron needs it
        except ImportError as error:
            message = f"The schedule {expression!r} needs the package cronsim: pip install django-pgqueue[cron]."
            raise InvalidSchedule(message) from error
        try:
            slots = CronSim(expression, moment.astimezone(ZoneInfo(self.timezone)))
        except CronSimError as error:
            message = f"{expression!r} is not a cron expression ({error}). Five fields: minute hour day month weekday."
            raise InvalidSchedule(message) from error
        except (ZoneInfoNotFoundError, ValueError) as error:
            message = f"{self.timezone!r} is not a time zone. Use a name such as 'Europe/Berlin' or 'UTC'."
            raise InvalidSchedule(message) from error
        return (slot.astimezone(dt.UTC) for slot in slots)

    @staticmethod
    def _by_interval(interval: dt.timedelta, moment: dt.datetime) -> Iterator[dt.datetime]:
        # Counted from 1970, so that every worker comes to the same slots.
        slot = EPOCH + (moment - EPOCH) // interval * interval
        while True:
            slot += interval
            yield slot


@dataclass(frozen=True, slots=True, kw_only=True)
class Recurrence:
    """A rule with what to call and what to do about missed slots: what ``@task(schedule=...)`` takes."""

    rule: Rule
    args: tuple[Any, ...] = ()
    kwargs: dict[str, Any] = field(default_factory=dict)
    catch_up: str = "one"
    name: str | None = None

    def __post_init__(self) -> None:
        if self.catch_up not in CATCH_UP:
            message = f"catch_up must be one of {', '.join(CATCH_UP)}, not {self.catch_up!r}."
            raise InvalidSchedule(message)


def cron(
    expression: str,
    *,
    timezone: str | None = None,
    args: Sequence[Any] = (),
    kwargs: Mapping[str, Any] | None = None,
    catch_up: str = "one",
    name: str | None = None,
) -> Recurrence:
    """A schedule by a cron expression, in the project's time zone unless another is named.

    ``catch_up`` says what happens to slots that passed while no worker ran: ``skip`` them, run ``one`` job for all of
    them, or run ``all``.

    >>> @task(schedule=cron("30 2 * * mon-fri", timezone="Europe/Berlin"))
    ... def close_the_books(): ...  # doctest: +SKIP
    """
    from django.conf import settings  # noqa: PLC0415 -- not while settings are being loaded

    rule = Rule(cron=expression, timezone=timezone or settings.TIME_ZONE)
    return Recurrence(rule=rule, args=tuple(args), kwargs=dict(kwargs or {}), catch_up=catch_up, name=name)


def every(
    interval: dt.timedelta,
    *,
    args: Sequence[Any] = (),
    kwargs: Mapping[str, Any] | None = None,
    catch_up: str = "one",
    name: str | None = None,
) -> Recurrence:
    """A schedule at each multiple of ``interval`` since 1970.

    >>> @task(schedule=every(timedelta(minutes=5)))
    ... def look_for_mail(): ...  # doctest: +SKIP
    """
    rule = Rule(interval_ms=interval // dt.timedelta(milliseconds=1))
    return Recurrence(rule=rule, args=tuple(args), kwargs=dict(kwargs or {}), catch_up=catch_up, name=name)


def due(rule: Rule, catch_up: str, *, first: dt.datetime, now: dt.datetime) -> tuple[list[dt.datetime], dt.datetime]:
    """The slots to enqueue at ``now``, and the first one that is left for later.  ``first`` has not been dealt with.

    >>> hourly, nine = Rule(interval_ms=3_600_000), EPOCH.replace(hour=9)
    >>> slots, later = due(hourly, "one", first=EPOCH.replace(hour=5), now=nine)
    >>> [slot.hour for slot in slots], later.hour
    ([9], 10)
    """
    passed = [first] if first <= now else []
    later = first
    if passed:
        for later in rule.after(first):
            if later > now or len(passed) >= MOST_SLOTS:
                break
            passed.append(later)
    match catch_up:
        case "all":
            return passed, later
        case "one":
            return passed[-1:], later
        case _:
            return [slot for slot in passed if now - slot <= ON_TIME], later
