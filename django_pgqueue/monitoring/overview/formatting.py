"""Formats numbers and times for people."""

from __future__ import annotations

import datetime as dt
from typing import Any

from django.utils.translation import gettext

from django_pgqueue.values.times import EARLIEST_MS, LATEST_MS, to_epoch_ms

NOTHING = "-"
FAR_MS = 1_000 * 86_400_000
Words = tuple[str, *tuple[Any, ...]]
"""A template with braces, and its values: the admin and the terminal show times and ids differently."""
UNITS = ((86_400, "d"), (3_600, "h"), (60, "min"), (1, "s"))


def number(value: int) -> str:
    """
    >>> number(10_000)
    '10\xa0000'
    """
    return f"{value:,}".replace(",", "\N{NO-BREAK SPACE}")


def relative(value: dt.datetime, now: dt.datetime) -> str:
    """Returns the distance of a time from now in its largest unit: "in 3 h", "5 min ago"; "" if it is some years."""
    ms = to_epoch_ms(value) - to_epoch_ms(now)
    if abs(ms) > FAR_MS:
        return ""
    words = span(dt.timedelta(milliseconds=abs(ms)))
    return (gettext("in {time}") if ms > 0 else gettext("{time} ago")).format(time=words)


def outside(value: dt.datetime) -> str:
    """Returns where a time lies that no calendar has, or "".  No person reads its number of milliseconds.

    >>> from django_pgqueue.values.times import EpochDateTime
    >>> outside(EpochDateTime.from_ms(2**63 - 1)), outside(EpochDateTime.from_ms(0))
    ('after the year 9999', '')
    """
    ms = to_epoch_ms(value)
    if ms > LATEST_MS:
        return gettext("after the year 9999")
    return gettext("before the year 1") if ms < EARLIEST_MS else ""


def span(value: dt.timedelta | None) -> str:
    """
    >>> span(dt.timedelta(milliseconds=12)), span(dt.timedelta(seconds=2.5)), span(dt.timedelta(hours=30))
    ('12 ms', '2.5 s', '1 d')
    """
    if value is None:
        return NOTHING
    seconds = value.total_seconds()
    if abs(seconds) < 1:
        return f"{seconds * 1000:.0f} ms"
    if abs(seconds) < 10:
        return f"{seconds:.1f} s"
    unit, name = next((unit, name) for unit, name in UNITS if abs(seconds) >= unit)
    return f"{seconds / unit:.0f} {name}"


def change(a_minute: float) -> str:
    """
    >>> change(200.4), change(-1_234.5), change(1.25)
    ('+200', '-1\xa0234', '+1.2')
    """
    return f"{'-' if a_minute < 0 else '+'}{rate(abs(a_minute))}"


def rate(a_minute: float) -> str:
    """
    >>> rate(0), rate(0.4), rate(1_234.5)
    ('0', '0.4', '1\xa0234')
    """
    shown = f"{a_minute:,.0f}" if a_minute >= 10 or not a_minute else f"{a_minute:.1f}"
    return shown.replace(",", "\N{NO-BREAK SPACE}")
