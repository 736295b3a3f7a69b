"""The colours of the worker's lines on a terminal."""

from __future__ import annotations

import logging
import os
from typing import TYPE_CHECKING, Any

from django.utils.termcolors import colorize

from django_pgqueue.worker.record.lines import PLAIN, LineFormatter

if TYPE_CHECKING:
    from typing import TextIO

OUTCOMES = {
    "succeeded": "green",
    "deferred": "cyan",
    "suspended": "cyan",
    "scheduled": "cyan",
    "retried": "yellow",
    "cancelled": "yellow",
    "lost": "magenta",
    "abandoned": "magenta",
    "failed": "red",
    "crashed": "red",
}
LEVELS = {logging.WARNING: "yellow", logging.ERROR: "red", logging.CRITICAL: "red"}


class Coloured(LineFormatter):
    """Colours the level and the first word of a line by the outcome."""

    def format(self, record: logging.LogRecord) -> str:
        level, line = f"{record.levelname:<7}", super().format(record)
        before, _, rest = line.partition(f" {level} ")
        word = rest.partition(" ")[0]
        colour = OUTCOMES.get(word, LEVELS.get(record.levelno))
        if colour is None:
            return line
        return (
            f"{before} {colorize(level, fg=LEVELS.get(record.levelno, colour))} "
            f"{colorize(word, fg=colour, opts=('bold',))}{rest[len(word) :]}"
        )


def formatter(stream: TextIO, options: dict[str, Any]) -> logging.Formatter:
    return Coloured(PLAIN) if has_colours(stream, options) else LineFormatter(PLAIN)


def has_colours(stream: TextIO, options: dict[str, Any]) -> bool:
    """Whether to use colours: on a terminal, without Django's --no-color or NO_COLOR (no-color.org)."""
    if options.get("no_color") or options.get("force_color"):
        return bool(options.get("force_color"))
    return stream.isatty() and not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb"
