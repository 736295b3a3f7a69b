"""Schedules: rules, and the slots that follow from them.  Arithmetic only."""

from __future__ import annotations

import datetime as dt
from contextlib import suppress
from dataclasses import dataclass, field
from itertools import chain, islice, takewhile
from typing import TYPE_CHECKING, Any
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from cronsim import CronSim, CronSimError

from django_pgqueue.exceptions import InvalidSchedule
from django_pgqueue.values import content, names
from django_pgqueue.values.signatures import signature
from django_pgqueue.values.times import EPOCH, MICROSECOND, MILLISECOND, aware

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

CATCH_UP = ("skip", "one", "all")
ON_TIME = dt.timedelta(seconds=60)
"""A slot counts as missed only after this time, because workers need a moment."""
MAX_SLOTS = 1000
"""Number of missed slots that are enqueued at a time; the others follow a moment later."""
LOOK_BACK = [dt.timedelta(hours=1), dt.timedelta(days=1), dt.timedelta(days=31), dt.timedelta(days=366)]
UNITS = (("week", 604_800_000), ("day", 86_400_000), ("hour", 3_600_000), ("minute", 60_000), ("second", 1000))


@dataclass(frozen=True, slots=True, kw_only=True)
class Rule:
    """Rule of a schedule: a cron expression in a time zone, or an interval in milliseconds, counted from 1970."""

    cron: str | None = None
    interval_ms: int | None = None
    timezone: str = "UTC"

    def __post_init__(self) -> None:
        if (self.cron is None) == (self.interval_ms is None):
            message = (
                f"A schedule has either a cron expression or an interval, not {self.cron!r} and {self.interval_ms!r}."
            )
            raise InvalidSchedule(message)
        if self.interval_ms is not None and self.interval_ms < 1:
            message = f"The interval of a schedule must be at least a millisecond, not {self.interval_ms} ms."
            raise InvalidSchedule(message)
        zone(self.timezone)
        self.first_after(EPOCH)

    def after(self, moment: dt.datetime) -> Iterator[dt.datetime]:
        """Yields the slots after ``moment``, in order, in UTC.

        >>> [slot.hour for slot, _ in zip(Rule(cron="0 */6 * * *").after(EPOCH), range(3))]
        [6, 12, 18]
        """
        moment = aware(moment)
        with suppress(OverflowError):  # at the end of the calendar
            for slot in self._by_interval(moment) if self.cron is None else self._by_cron(self.cron, moment):
                # When clocks go back and an hour repeats, cronsim may begin in the second one with a slot of the first.
                if slot > moment:
                    yield slot

    def first_after(self, moment: dt.datetime) -> dt.datetime:
        for slot in self.after(moment):
            return slot
        message = f"{self.cron or f'{self.interval_ms} ms'!r} is never due: no slot was found after {moment:%Y-%m-%d}."
        raise InvalidSchedule(message)

    def last_until(self, moment: dt.datetime, *, first: dt.datetime) -> dt.datetime:
        """Returns the last slot that is not after ``moment``, given that ``first`` is a slot.

        It does not go through all slots: after a year without workers, a rule has missed half a million minutes.
        """
        if self.cron is None:
            return max(first, next(self._by_interval(moment)) - dt.timedelta(milliseconds=self.interval_ms or 0))
        for span in LOOK_BACK:
            if moment - first < span:
                break
            slots = list(takewhile(lambda slot: slot <= moment, self.after(moment - span)))
            if slots:
                return slots[-1]
        *_, last = first, *takewhile(lambda slot: slot <= moment, self.after(first))
        return last

    @property
    def words(self) -> str:
        """The rule as text for people.

        >>> Rule(interval_ms=7_200_000).words
        'every 2 hours'
        """
        if self.cron is not None:
            return f"{_cronsim(self.cron, EPOCH).explain()} ({self.timezone})"
        ms = self.interval_ms or 0
        unit, size = next(((unit, size) for unit, size in UNITS if ms % size == 0), ("millisecond", 1))
        return f"every {unit}" if ms == size else f"every {ms // size:,} {unit}s"

    def _by_cron(self, expression: str, moment: dt.datetime) -> Iterator[dt.datetime]:
        # cronsim does what Debian's cron does when clocks change: a job of a skipped hour runs right after it, a job of
        # a repeated hour runs once, and a job that runs every few minutes goes on as before.
        for slot in _cronsim(expression, moment.astimezone(zone(self.timezone))):
            yield slot.astimezone(dt.UTC)

    def _by_interval(self, moment: dt.datetime) -> Iterator[dt.datetime]:
        # Counted from 1970, so that every worker computes the same slots.
        interval = dt.timedelta(milliseconds=self.interval_ms or 0)
        slot = EPOCH + (moment - EPOCH) // interval * interval
        while True:
            slot += interval
            yield slot


def zone(name: str) -> dt.tzinfo:
    if name == "UTC":
        return dt.UTC  # works also on a system without time zone data
    try:
        return ZoneInfo(name)
    except (ZoneInfoNotFoundError, ValueError, OSError, TypeError) as error:
        message = (
            f"{name!r} is not a time zone. Use a name such as 'Europe/Berlin' or 'UTC'; if this is one, the system "
            "lacks the time zone database: pip install tzdata."
        )
        raise InvalidSchedule(message) from error


def _cronsim(expression: str, moment: dt.datetime) -> Any:
    try:
        return CronSim(expression, moment)
    except (CronSimError, ValueError, TypeError, AttributeError) as error:
        message = (
            f"{expression!r} is not a cron expression ({error}). Five fields: minute hour day month weekday. From "
            "cronsim 2.7 on, the second may stand before them."
        )
        raise InvalidSchedule(message) from error


@dataclass(frozen=True, slots=True, kw_only=True)
class Recurrence:
    """Schedule for ``@task(schedule=...)``: a rule, the arguments of the call, and the policy for missed slots."""

    rule: Rule
    args: tuple[Any, ...] = ()
    kwargs: dict[str, Any] = field(default_factory=dict)
    catch_up: str = "one"
    name: str | None = None

    def __post_init__(self) -> None:
        if self.catch_up not in CATCH_UP:
            message = f"catch_up must be one of {', '.join(CATCH_UP)}, not {self.catch_up!r}."
            raise InvalidSchedule(message)
        if self.name is not None and not names.is_name(self.name):
            message = f"{self.name!r} cannot be the name of a schedule: {names.NAMES_ARE}."
            raise InvalidSchedule(message)
        content.normalize({"args": self.args, "kwargs": self.kwargs}, "the call of a schedule")


def cron(
    expression: str,
    *,
    timezone: str | None = None,
    args: Sequence[Any] = (),
    kwargs: Mapping[str, Any] | None = None,
    catch_up: str = "one",
    name: str | None = None,
) -> Recurrence:
    """Returns a schedule with a cron expression, in the project's time zone unless ``timezone`` names another.

    ``catch_up``: the policy for slots that passed while no worker ran.  ``skip`` them, run ``one`` job for all of them,
    or run ``all``.

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
    """Returns a schedule with a slot at each multiple of ``interval`` since 1970.

    >>> @task(schedule=every(timedelta(minutes=5)))
    ... def look_for_mail(): ...  # doctest: +SKIP
    """
    given: Any = interval
    if not isinstance(given, dt.timedelta) or given % MILLISECOND:
        message = f"The interval of a schedule is a timedelta of whole milliseconds, not {interval!r}."
        raise InvalidSchedule(message)
    rule = Rule(interval_ms=interval // MILLISECOND)
    return Recurrence(rule=rule, args=tuple(args), kwargs=dict(kwargs or {}), catch_up=catch_up, name=name)


def check_call(
    func: Callable[..., Any], args: Sequence[Any], kwargs: Mapping[str, Any], *, takes_context: bool
) -> None:
    """Raises InvalidSchedule if the function of a task does not take these arguments."""
    try:
        signature(func).bind(*([None] if takes_context else []), *args, **kwargs)
    except TypeError as error:
        call = f"args={list(args)!r} and kwargs={dict(kwargs)!r}"
        message = f"{func.__qualname__} cannot be called with {call}: {error}."
        raise InvalidSchedule(message) from error


def due(rule: Rule, catch_up: str, *, first: dt.datetime, now: dt.datetime) -> tuple[list[dt.datetime], dt.datetime]:
    """Returns the slots to enqueue at ``now``, and the first slot left for later.  ``first``: the first unused slot.

    >>> hourly, nine = Rule(interval_ms=3_600_000), EPOCH.replace(hour=9)
    >>> slots, later = due(hourly, "one", first=EPOCH.replace(hour=5), now=nine)
    >>> [slot.hour for slot in slots], later.hour
    ([9], 10)
    """
    if first > now:
        return [], first
    if catch_up == "one":
        return [rule.last_until(now, first=first)], rule.first_after(now)
    # Younger slots do not count as missed, so "skip" runs them.
    oldest = first if catch_up == "all" else max(first, now - ON_TIME)
    slots = list(islice(_from(rule, first, oldest, now), MAX_SLOTS))
    return slots, rule.first_after(slots[-1] if len(slots) == MAX_SLOTS else now)


def _from(rule: Rule, first: dt.datetime, oldest: dt.datetime, now: dt.datetime) -> Iterable[dt.datetime]:
    slots = chain([first], rule.after(first)) if oldest == first else rule.after(oldest - MICROSECOND)
    return takewhile(lambda slot: slot <= now, slots)
