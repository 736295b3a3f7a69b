"""How far a running task is: its report, as a bar with a text."""

from __future__ import annotations

import json
import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

from django.utils.html import format_html
from django.utils.translation import gettext

from django_pgqueue.admin.parts import display

if TYPE_CHECKING:
    from django.utils.safestring import SafeString

LONGEST = 10_000
"""A longer report is no line of text beside a bar."""


@dataclass(frozen=True, slots=True)
class ProgressBar:
    """A report of ``context.progress``."""

    fraction: float
    text: str

    @classmethod
    def read(cls, report: str | None) -> ProgressBar | None:
        """Returns None for JSON of another form, which a consumer of its own, or a user, has written.

        >>> ProgressBar.read('{"fraction": 0.25, "text": "page 1 of 4"}')
        ProgressBar(fraction=0.25, text='page 1 of 4')
        >>> ProgressBar.read('{"done": true}') is None
        True
        """
        if report is None or len(report) > LONGEST:
            return None
        try:
            found = json.loads(report)
        except ValueError:  # a number with more digits than Python reads
            return None
        match found:
            case {"fraction": int() | float() as fraction, "text": str(text), **rest} if not rest:
                is_part = not isinstance(fraction, bool) and math.isfinite(fraction) and 0 <= fraction <= 1
                return cls(float(fraction), text) if is_part else None
        return None

    @property
    def percent(self) -> int:
        """Rounded down: 100 is the end, and not before."""
        return math.floor(self.fraction * 100 + 1e-9)

    def bar(self) -> SafeString:
        """Shows the report; a screen reader reads the value of the bar, and then the text."""
        words = f"{self.percent}\N{NO-BREAK SPACE}%"
        bar = format_html(
            '<progress max="100" value="{}" aria-label="{}">{}</progress>', self.percent, gettext("Progress"), words
        )
        text = display.quiet(display.shortened(self.text, 200)) if self.text else ""
        return format_html('<span class="pgqueue-progress">{} <span>{}</span> {}</span>', bar, words, text)
