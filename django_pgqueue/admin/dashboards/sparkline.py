"""Small charts of numbers over time: inline SVG, with a text for screen readers."""

from __future__ import annotations

from itertools import groupby
from typing import TYPE_CHECKING

from django.utils.html import format_html, format_html_join

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from django.utils.safestring import SafeString

WIDTH, HEIGHT = 144, 28
TOP = 2


def bars(values: Sequence[float], *, key: str, title: str, description: str) -> SafeString:
    """Draws amounts; zero has no bar."""
    most = max(values, default=0) or 1
    each = WIDTH / max(1, len(values))
    shapes = (
        (f"{place * each:.1f}", f"{HEIGHT - tall:.1f}", f"{max(1.0, each - 1):.1f}", f"{tall:.1f}")
        for place, value in enumerate(values)
        if value > 0
        for tall in [max(1.5, value / most * (HEIGHT - TOP))]
    )
    drawn = format_html_join("", '<rect x="{}" y="{}" width="{}" height="{}"/>', shapes)
    return _picture(drawn, key=key, title=title, description=description)


def line(values: Sequence[float | None], *, key: str, title: str, description: str) -> SafeString:
    """Draws measurements; the line is broken where there are none."""
    drawn = format_html_join("", '<polyline points="{}"/>', ((points,) for points in _strokes(values)))
    return _picture(drawn, key=key, title=title, description=description)


def _strokes(values: Sequence[float | None]) -> Iterator[str]:
    most = max((value for value in values if value is not None), default=0) or 1
    each = WIDTH / max(1, len(values))
    for there, run in groupby(enumerate(values), key=lambda item: item[1] is not None):
        if there:
            points = [(place * each, HEIGHT - 1 - (value or 0) / most * (HEIGHT - TOP - 1)) for place, value in run]
            points.append((points[-1][0] + each, points[-1][1]))  # a single value is a dash
            yield " ".join(f"{x:.1f},{y:.1f}" for x, y in points)


def _picture(drawn: SafeString, *, key: str, title: str, description: str) -> SafeString:
    return format_html(
        '<svg class="pgqueue-spark" viewBox="0 0 {} {}" width="{}" height="{}" role="img" preserveAspectRatio="none"'
        ' aria-labelledby="{}-title {}-desc"><title id="{}-title">{}</title><desc id="{}-desc">{}</desc>{}</svg>',
        WIDTH, HEIGHT, WIDTH, HEIGHT, key, key, key, title, key, description, drawn,
    )  # fmt: skip
