"""Charts as inline SVG without scripts: geometry here, elements in a template, colours in a style sheet."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NamedTuple

from django.utils import dateformat
from django.utils.translation import pgettext

from django_pgqueue.admin.parts import display

if TYPE_CHECKING:
    import datetime as dt
    from collections.abc import Callable, Sequence

WIDTH, HEIGHT = 640, 200
LEFT, RIGHT, TOP, BOTTOM = 64, 8, 10, 22
LABELS = 6


def rounded_up(value: float) -> float:
    """
    >>> rounded_up(0), rounded_up(7), rounded_up(130), rounded_up(0.3)
    (1, 8.0, 200.0, 0.4)
    """
    if value <= 0:
        return 1
    power = math.pow(10, math.floor(math.log10(value)))
    return next(round(step * power, 12) for step in (1, 2, 4, 8, 10) if step * power >= value * 0.999999)


class Bar(NamedTuple):
    x: str
    y: str
    width: str
    height: str
    tone: str
    title: str


class Tick(NamedTuple):
    at: str
    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Series:
    name: str
    tone: str
    values: Sequence[float | None]
    filled: bool = False


@dataclass(slots=True, kw_only=True)
class Chart:
    """A chart of stacked bars, and lines over them, by step of time."""

    title: str
    steps: Sequence[dt.datetime]
    daily: bool
    unit: Callable[[float], str]
    round_up: Callable[[float], float] = rounded_up
    bars: Sequence[Series] = ()
    lines: Sequence[Series] = ()
    note: str = ""
    top: float = field(init=False)

    def __post_init__(self) -> None:
        stacks = [sum(series.values[n] or 0 for series in self.bars) for n in range(len(self.steps))]
        points = [value for series in self.lines for value in series.values if value is not None]
        self.top = self.round_up(max([*stacks, *points, 0]))

    width, height = WIDTH, HEIGHT
    right = WIDTH - RIGHT
    left = LEFT
    base = HEIGHT - BOTTOM
    legend_base = HEIGHT - 6

    @property
    def is_empty(self) -> bool:
        return not any(value for series in (*self.bars, *self.lines) for value in series.values)

    @property
    def legend(self) -> list[Series]:
        return [series for series in (*self.bars, *self.lines) if any(series.values)]

    @property
    def rectangles(self) -> list[Bar]:
        found = []
        wide = self._wide()
        for number, step in enumerate(self.steps):
            at = 0.0
            for series in self.bars:
                value = series.values[number] or 0
                if value:
                    title = f"{self.when(step)}: {self.unit(value)} {series.name}"
                    height = self._y(at) - self._y(at + value)
                    x = LEFT + number * wide + wide * 0.1
                    found.append(
                        Bar(
                            px(x),
                            px(self._y(at + value)),
                            px(max(wide * 0.8, 1)),
                            px(max(height, 0.5)),
                            series.tone,
                            title,
                        )
                    )
                at += value
        return found

    @property
    def paths(self) -> list[tuple[Series, str]]:
        return [(series, self._path(series)) for series in self.lines]

    @property
    def dots(self) -> list[tuple[Series, str, str, str]]:
        """Points to hover over; of a value without neighbours, only its point is visible."""
        return [
            (
                series,
                px(self._x(n)),
                px(self._y(value)),
                f"{self.when(self.steps[n])}: {self.unit(value)} {series.name}",
            )
            for series in self.lines
            for n, value in enumerate(series.values)
            if value is not None
        ]

    @property
    def rows(self) -> list[Tick]:
        return [Tick(px(self._y(self.top * part / 4)), self.unit(self.top * part / 4)) for part in (0, 1, 2, 3, 4)]

    @property
    def columns(self) -> list[Tick]:
        if not self.steps:
            return []
        every = max(1, math.ceil(len(self.steps) / LABELS))
        return [Tick(px(self._x(n)), self.when(step)) for n, step in enumerate(self.steps) if n % every == 0]

    def when(self, step: dt.datetime) -> str:
        day = dateformat.format(step, pgettext("date format", "M j"))
        return day if self.daily else f"{day} {step:%H:%M}"

    def _path(self, series: Series) -> str:
        """Draws one line for each run of steps that have a value."""
        words, pen_down = [], False
        for number, value in enumerate(series.values):
            if value is not None:
                words.append(f"{'L' if pen_down else 'M'}{px(self._x(number))} {px(self._y(value))}")
            pen_down = value is not None
        if series.filled and words:
            words += [f"L{px(self._x(len(self.steps) - 1))} {px(self.base)}", f"L{px(self._x(0))} {px(self.base)}Z"]
        return " ".join(words)

    def _wide(self) -> float:
        return (WIDTH - LEFT - RIGHT) / max(1, len(self.steps))

    def _x(self, number: int) -> float:
        return LEFT + (number + 0.5) * self._wide()

    def _y(self, value: float) -> float:
        return self.base - value / self.top * (self.base - TOP)


def px(value: float) -> str:
    """Formats a number without the page's locale: SVG knows no decimal commas.

    >>> px(2.0), px(0.04)
    ('2', '0')
    """
    return f"{value:.1f}".removesuffix(".0")


def rounded_up_ms(value: float) -> float:
    """Rounds up to a duration whose quarters are familiar.

    >>> duration(rounded_up_ms(61_000)), duration(rounded_up_ms(700)), duration(rounded_up_ms(90_000_000))
    ('2 min', '800 ms', '2 d')
    """
    known = [minutes * 60_000 for minutes in (1, 2, 4, 8, 20, 40, 60, 120, 240, 480, 1440)]
    return next((ms for ms in known if ms >= value > 40_000), 0) or (
        rounded_up(value / 86_400_000) * 86_400_000 if value > 40_000 else rounded_up(value)
    )


def count(value: float) -> str:
    """
    >>> count(950), count(12_000), count(2.5)
    ('950', '12k', '2.5')
    """
    for size, letter in ((1e9, "G"), (1e6, "M"), (1e4, "k")):
        if value >= size:
            return f"{value / (1e3 if letter == 'k' else size):.3g}{letter}"
    return display.number(int(value)) if value == int(value) else f"{value:.3g}"


def duration(ms: float) -> str:
    """
    >>> duration(0), duration(12), duration(2500), duration(7_200_000)
    ('0', '12 ms', '2.5 s', '2 h')
    """
    for size, unit in ((86_400_000, "d"), (3_600_000, "h"), (60_000, "min"), (1000, "s"), (1, "ms")):
        if ms >= size:
            return f"{ms / size:.3g} {unit}"
    return f"{ms:.2g} ms" if ms else "0"
